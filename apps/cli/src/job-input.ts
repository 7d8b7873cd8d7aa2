import { dirname, isAbsolute, resolve } from "node:path";
import { readText, type Expected } from "./files.ts";
import { parseJobDocument } from "./job-document.ts";

const JOB_FILE: Expected = {
  code: "job-invalid",
  field: "job",
  what: "a job file, in YAML or JSON",
  filled: true,
  smaller: "give a job file; data is named in it by its path",
};

/** The services run elsewhere: what is relative here means the place of the job file. */
export function withAbsolutePaths(document: unknown, base: string): unknown {
  if (typeof document !== "object" || document === null) return document;
  const job = { ...(document as Record<string, unknown>) };
  const absolute = (path: unknown): unknown =>
    typeof path === "string" && path !== "" && !isAbsolute(path) ? resolve(base, path) : path;
  const source = (written: unknown): unknown => {
    if (typeof written !== "object" || written === null) return written;
    const data = { ...(written as Record<string, unknown>) };
    if (Array.isArray(data["paths"])) data["paths"] = data["paths"].map(absolute);
    if (Array.isArray(data["sources"])) data["sources"] = data["sources"].map(source);
    if ("path" in data) data["path"] = absolute(data["path"]);
    return data;
  };
  const withData = (of: Record<string, unknown>): void => {
    if ("data" in of) of["data"] = source(of["data"]);
  };
  withData(job);
  if (typeof job["validation"] === "object" && job["validation"] !== null) {
    const validation = { ...(job["validation"] as Record<string, unknown>) };
    withData(validation);
    job["validation"] = validation;
  }
  if ("initialWeights" in job) job["initialWeights"] = absolute(job["initialWeights"]);
  if (typeof job["cluster"] === "object" && job["cluster"] !== null) {
    const cluster = { ...(job["cluster"] as Record<string, unknown>) };
    const profile = cluster["profile"];
    // A name is a shipped profile; a path shows itself by a slash or its ending.
    if (typeof profile === "string" && (profile.includes("/") || profile.endsWith(".json")))
      cluster["profile"] = absolute(profile);
    job["cluster"] = cluster;
  }
  return job;
}

/**
 * Reads a job file as it is written, with its paths made absolute; the API checks the content.
 * @throws ProblemError `job-invalid`: unreadable, too large, or no YAML or JSON that stands for a job (with
 * the field or the line).
 */
export async function readJobFile(path: string): Promise<unknown> {
  const document = parseJobDocument(await readText(path, JOB_FILE), path);
  return withAbsolutePaths(document, path === "-" ? process.cwd() : dirname(resolve(path)));
}
