import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { ProblemError } from "@internevo/domain";
import { Type, type Static } from "typebox";
import { Check } from "typebox/value";

const LoginsSchema = Type.Object({
  /** The installation that commands without `--url` mean; null: none. */
  current: Type.Union([Type.String(), Type.Null()]),
  /** By the API's address. */
  logins: Type.Record(Type.String(), Type.Object({ token: Type.String(), expiresAt: Type.String() })),
});
export type Logins = Static<typeof LoginsSchema>;
export type Login = Logins["logins"][string];

const NONE: Logins = { current: null, logins: {} };

/** An API's address as clients take it: also of one that is given with the path of its routes, as `status` shows it. */
export const addressOf = (url: string): string =>
  url
    .replace(/\/+$/, "")
    .replace(/\/api\/v1$/, "")
    .replace(/\/+$/, "");

/** The file that keeps what `internevo login` got. */
export const loginsFile = (env: NodeJS.ProcessEnv): string =>
  join(env["XDG_CONFIG_HOME"] || join(env["HOME"] || homedir(), ".config"), "internevo", "logins.json");

/** What is kept. @throws ProblemError `bad-request` for a file that is something else */
export function readLogins(env: NodeJS.ProcessEnv): Logins {
  const file = loginsFile(env);
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return NONE;
    throw error;
  }
  try {
    const read: unknown = JSON.parse(text);
    if (Check(LoginsSchema, read)) return read;
  } catch {
    // Told below.
  }
  throw new ProblemError("bad-request", `${file} is not what \`internevo login\` writes`, [
    { field: file, message: "is damaged", remedy: "delete it, and log in again" },
  ]);
}

/** Keeps logins where nobody else reads them. */
export function writeLogins(env: NodeJS.ProcessEnv, logins: Logins): void {
  const file = loginsFile(env);
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  // Whole or not at all, and never readable by others, not even for a moment.
  const beside = `${file}.${process.pid}`;
  writeFileSync(beside, `${JSON.stringify(logins, null, 2)}\n`, { mode: 0o600 });
  renameSync(beside, file);
}
