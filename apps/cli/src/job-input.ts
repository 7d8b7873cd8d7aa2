import { createReadStream } from "node:fs";
import { dirname, isAbsolute, resolve } from "node:path";
import { ProblemError, type ProblemCode } from "@internevo/domain";
import { parseJobDocument } from "./job-document.ts";

const MAXIMUM_BYTES = 1 << 20;

/** What a file is expected to be, for whoever gives another. */
interface Expected {
  readonly code: ProblemCode;
  readonly field: string;
  readonly what: string;
}
const JOB_FILE: Expected = { code: "job-invalid", field: "(job file)", what: "a job file, in YAML or JSON" };

/** @throws ProblemError of the code that is given when the file cannot be read, is larger than 1 MiB or is no text. */
export async function readText(path: string, { code, field, what }: Expected = JOB_FILE): Promise<string> {
  const refusal = (path: string, message: string, remedy: string, cause?: unknown): ProblemError => new ProblemError(code, `${path} ${message}`, [{ field, value: path, message, remedy }], { cause });
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of path === "-" ? process.stdin : createReadStream(path)) {
      chunks.push(chunk as Buffer);
      length += (chunk as Buffer).length;
      if (length > MAXIMUM_BYTES) break;
    }
  } catch (error) {
    const cause = (error as NodeJS.ErrnoException).code;
    const message = cause === "ENOENT" ? "does not exist" : cause === "EISDIR" ? "is a directory" : cause === "EACCES" ? "cannot be read" : `cannot be read (${cause ?? String(error)})`;
    throw refusal(path, message, `give the path of ${what}`, error);
  }
  if (length > MAXIMUM_BYTES) throw refusal(path, "is larger than 1 MiB", code === "job-invalid" ? "give a job file; data is named in it by its path" : `give ${what}`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks));
  } catch (error) {
    throw refusal(path, "is not UTF-8", `give ${what}, as UTF-8 text`, error);
  }
}

/** The services run elsewhere: what is relative here means the place of the job file. */
function withAbsolutePaths(document: unknown, base: string): unknown {
  if (typeof document !== "object" || document === null) return document;
  const job = { ...(document as Record<string, unknown>) };
  const absolute = (path: unknown): unknown => (typeof path === "string" && path !== "" && !isAbsolute(path) ? resolve(base, path) : path);
  if (typeof job["data"] === "object" && job["data"] !== null) {
    const data = { ...(job["data"] as Record<string, unknown>) };
    if (Array.isArray(data["paths"])) data["paths"] = data["paths"].map(absolute);
    if ("path" in data) data["path"] = absolute(data["path"]);
    job["data"] = data;
  }
  if ("initialWeights" in job) job["initialWeights"] = absolute(job["initialWeights"]);
  if (typeof job["cluster"] === "object" && job["cluster"] !== null) {
    const cluster = { ...(job["cluster"] as Record<string, unknown>) };
    const profile = cluster["profile"];
    // A name is a shipped profile; a path shows itself by a slash or its ending.
    if (typeof profile === "string" && (profile.includes("/") || profile.endsWith(".json"))) cluster["profile"] = absolute(profile);
    job["cluster"] = cluster;
  }
  return job;
}

/**
 * Reads a job file as it is written, with its paths made absolute; the API checks the content.
 * @throws ProblemError `job-invalid`: unreadable, too large, or no YAML or JSON that stands for a job (with the field or the line).
 */
export async function readJobFile(path: string): Promise<unknown> {
  const document = parseJobDocument(await readText(path), path);
  return withAbsolutePaths(document, path === "-" ? process.cwd() : dirname(resolve(path)));
}
