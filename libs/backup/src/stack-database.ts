import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { ProblemError } from "@internevo/domain";
import { isConnectionLoss } from "@internevo/store";
import { readStackInfo, startLocalStack } from "@internevo/local-stack";

const starting = (dataDirectory: string): ProblemError =>
  new ProblemError("unavailable", `the stack in ${dataDirectory} is still starting`, [
    {
      field: "dataDirectory",
      value: dataDirectory,
      message: "has a stack whose database is not ready yet",
      remedy: "wait until `internevo status` says that it is ready",
    },
  ]);

const noStack = (dataDirectory: string): ProblemError =>
  new ProblemError("not-found", `there is no stack in ${dataDirectory}`, [
    {
      field: "dataDirectory",
      value: dataDirectory,
      message: "has no stack's data, and DATABASE_URL is not set",
      remedy: "name the stack's directory with --data-directory, or set DATABASE_URL",
    },
  ]);

/**
 * Finds the database of a data directory: that of the stack that runs there, else the one that is named, else
 * the directory's own, which runs meanwhile.
 * @param named DATABASE_URL; undefined or empty: none
 * @throws ProblemError `not-found` where there is no stack, `unavailable` while one starts
 */
export async function withDatabaseOf<T>(
  dataDirectory: string,
  named: string | undefined,
  signal: AbortSignal,
  work: (databaseUrl: string) => Promise<T>,
): Promise<T> {
  const directory = resolve(dataDirectory);
  const info = readStackInfo(directory);
  if (info !== undefined) {
    if (info.databaseUrl === "") throw starting(directory);
    return work(info.databaseUrl);
  }
  if (named !== undefined && named !== "") return work(named);
  if (!existsSync(join(directory, "secrets.json"))) throw noStack(directory);
  const stack = await startLocalStack({
    dataDirectory: directory,
    services: [],
    databaseUrl: "",
    natsUrl: "",
    signal,
  });
  try {
    return await work(stack.info().databaseUrl);
  } finally {
    await stack.stop();
  }
}

/** A database that does not answer, in words. Other errors stay as they are. */
export const databaseGone = (error: unknown): unknown =>
  isConnectionLoss(error)
    ? new ProblemError(
        "unavailable",
        `the database does not answer: ${(error as Error).message}`,
        [
          {
            field: "DATABASE_URL",
            message: "names a database that cannot be reached",
            remedy: "see whether it runs, then try again",
          },
        ],
        { cause: error },
      )
    : error;
