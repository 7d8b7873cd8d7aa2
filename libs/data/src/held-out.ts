import { stat } from "node:fs/promises";
import { dataFiles, ProblemError, ifThere, type Data, type ProblemDetail } from "@internevo/domain";

const MOST_DETAILS = 20;

/** What a path cannot lead to is no data: whoever reads it next says so, with the reason. */
const NOT_TO_BE_LOOKED_AT = ["EACCES", "ELOOP", "ENAMETOOLONG"];

/** What a file is, whatever the names and links that lead to it; undefined where nothing can be looked at. */
async function identityOf(path: string): Promise<string | undefined> {
  const found = await ifThere(() => stat(path, { bigint: true })).catch((error: unknown) => {
    if (NOT_TO_BE_LOOKED_AT.includes((error as NodeJS.ErrnoException).code ?? "")) return undefined;
    throw error;
  });
  return found && `${found.dev}:${found.ino}`;
}

/**
 * Checks that no file of held-out data is trained on, by another name or through a link.
 * @throws ProblemError `data-invalid`; its fields are those of the held-out data
 */
export async function assertHeldOut(heldOut: Data, trained: Data): Promise<void> {
  const names = new Map<string, string>();
  for (const { path } of dataFiles(trained)) {
    const identity = await identityOf(path);
    if (identity !== undefined) names.set(identity, path);
  }
  const details: ProblemDetail[] = [];
  for (const { path, field } of dataFiles(heldOut)) {
    const name = names.get((await identityOf(path)) ?? "");
    if (name === undefined || details.length === MOST_DETAILS) continue;
    details.push({
      field,
      value: path,
      message: `is trained on: it is the same file as ${name} in data`,
      remedy: "hold a file out of data, and name it here only",
    });
  }
  const [first] = details;
  if (first) throw new ProblemError("data-invalid", `${String(first.value)} ${first.message}`, details);
}
