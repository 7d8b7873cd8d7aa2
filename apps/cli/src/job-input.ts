import { createReadStream } from "node:fs";
import { dirname, isAbsolute, resolve } from "node:path";
import { ProblemError } from "@internevo/domain";
import { parseJobDocument } from "./job-document.ts";

const MAXIMUM_BYTES = 1 << 20;

const refusal = (path: string, message: string, remedy: string, cause?: unknown): ProblemError =>
  new ProblemError("job-invalid", `${path} ${message}`, [{ field: "(job file)", value: path, message, remedy }], { cause });

/** @throws ProblemError `job-invalid` when the file cannot be read, is too large or is no text. */
async function readText(path: string): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of path === "-" ? process.stdin : createReadStream(path)) {
      chunks.push(chunk as Buffer);
      length += (chunk as Buffer).length;
      if (length > MAXIMUM_BYTES) break;
    }
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    const message = code === "ENOENT" ? "does not exist" : code === "EISDIR" ? "is a directory" : code === "EACCES" ? "cannot be read" : `cannot be read (${code ?? String(error)})`;
    throw refusal(path, message, "give the path of a job file, in YAML or JSON", error);
  }
  if (length > MAXIMUM_BYTES) throw refusal(path, "is larger than 1 MiB", "give a job file; data is named in it by its path");
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks));
  } catch (error) {
    throw refusal(path, "is not UTF-8", "write the job file as UTF-8 text", error);
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
