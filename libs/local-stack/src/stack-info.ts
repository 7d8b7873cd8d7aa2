import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isAbsent, ProblemError, validate } from "@internevo/domain";
import { Type, type Static } from "typebox";
import { processStart } from "./proc.ts";

/** What `<dataDirectory>/stack.json` says (mode 0600: it holds secrets). */
export interface StackInfo {
  readonly schemaVersion: 1;
  /** The supervising process, and when it began: see {@link readStackInfo}. */
  readonly pid: number;
  readonly pidStart: string;
  readonly startedAt: string;
  /** Undefined until the stack is ready. */
  readonly readyAt: string | null;
  readonly apiUrl: string | null;
  readonly apiToken: string;
  readonly databaseUrl: string;
  readonly natsUrl: string;
  readonly namespace: string;
  readonly processes: Readonly<
    Record<string, { readonly pid: number | null; readonly healthUrl: string | null }>
  >;
}

/** Visible ASCII: it goes into addresses and headers. */
const Secret = Type.String({ pattern: "^[!-~]{1,256}$" });
const Port = Type.Integer({ minimum: 1, maximum: 65_535 });
const strict = { additionalProperties: false } as const;

const SecretsSchema = Type.Object(
  {
    postgresPort: Type.Optional(Port),
    postgresPassword: Secret,
    natsPort: Type.Optional(Port),
    /** Of further servers, and of all for each other. */
    natsClusterPorts: Type.Optional(
      Type.Object({ clients: Type.Array(Port), routes: Type.Array(Port) }, strict),
    ),
    natsToken: Secret,
    apiPort: Type.Optional(Port),
    apiToken: Secret,
  },
  strict,
);
/** Kept over restarts, so that addresses and credentials stay. */
export type StackSecrets = Static<typeof SecretsSchema>;

/**
 * Reads secrets that come from elsewhere, such as a backup.
 * @param what names their file in the error
 * @throws ProblemError `data-invalid`
 */
export function parseSecrets(text: string, what: string): StackSecrets {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // Its error would quote the text.
    throw new ProblemError("data-invalid", `${what} is no JSON`);
  }
  return validate(SecretsSchema, value, "data-invalid", what);
}

const writePrivate = (path: string, value: unknown): void => {
  writeFileSync(`${path}.new`, `${JSON.stringify(value, null, 2)}\n`, { mode: 0o600 });
  renameSync(`${path}.new`, path);
};
const readJson = <T>(path: string): T | undefined => {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as T;
  } catch (error) {
    // Below a file is no stack either.
    if (isAbsent(error) || error instanceof SyntaxError) return undefined;
    throw error;
  }
};

export const writeStackInfo = (dataDirectory: string, info: StackInfo): void =>
  writePrivate(join(dataDirectory, "stack.json"), info);
export const readSecrets = (dataDirectory: string): StackSecrets | undefined =>
  readJson(join(dataDirectory, "secrets.json"));
export function writeSecrets(dataDirectory: string, secrets: StackSecrets): void {
  writePrivate(join(dataDirectory, "secrets.json"), secrets);
}

/** Whether the process that a record names has not ended: it takes the record away before it ends. */
export const supervisorLives = ({ pid, pidStart }: StackInfo): boolean => processStart(pid) === pidStart;

/** Whether a file is a record at all: somebody may have changed it. */
const isRecord = (value: unknown): value is StackInfo => {
  const { pid, pidStart, apiToken } = (value ?? {}) as Partial<Record<keyof StackInfo, unknown>>;
  return Number.isInteger(pid) && typeof pidStart === "string" && typeof apiToken === "string";
};

/** The stack that runs in a directory now: undefined when there is none, or its supervisor is dead. */
export function readStackInfo(dataDirectory: string): StackInfo | undefined {
  const info = readJson<unknown>(join(dataDirectory, "stack.json"));
  return isRecord(info) && supervisorLives(info) ? info : undefined;
}
