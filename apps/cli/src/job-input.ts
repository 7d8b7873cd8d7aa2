import { readFile } from "node:fs/promises";
import { dirname, isAbsolute, resolve } from "node:path";
import { text } from "node:stream/consumers";
import { ProblemError } from "@internevo/domain";
import { parseDocument } from "yaml";

const MAXIMUM_BYTES = 1 << 20;

/** @throws ProblemError `job-invalid` when the file cannot be read. */
async function readText(path: string): Promise<string> {
  if (path === "-") return text(process.stdin);
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    const message = code === "ENOENT" ? "does not exist" : code === "EISDIR" ? "is a directory" : code === "EACCES" ? "cannot be read" : `cannot be read (${code ?? String(error)})`;
    throw new ProblemError("job-invalid", `${path} ${message}`, [{ field: "(job file)", value: path, message, remedy: "give the path of a job file, in YAML or JSON" }], { cause: error });
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
 * @throws ProblemError `job-invalid`: unreadable, too large, or neither YAML nor JSON (with the line).
 */
export async function readJobFile(path: string): Promise<unknown> {
  const content = await readText(path);
  if (Buffer.byteLength(content) > MAXIMUM_BYTES) {
    throw new ProblemError("job-invalid", `${path} is larger than 1 MiB`, [{ field: "(job file)", value: path, message: "is larger than 1 MiB", remedy: "give a job file; data is named in it by its path" }]);
  }
  const document = parseDocument(content, { prettyErrors: true });
  const error = document.errors[0];
  if (error) {
    const at = error.linePos?.[0];
    const message = error.message.split("\n")[0]?.replace(/:$/, "") ?? "is not YAML";
    throw new ProblemError("job-invalid", `${path} is neither YAML nor JSON: ${message}`, [
      { field: at ? `line ${at.line}, column ${at.col}` : "(job file)", message, remedy: "mend the file there" },
    ]);
  }
  return withAbsolutePaths(document.toJS({ maxAliasCount: 100 }) as unknown, path === "-" ? process.cwd() : dirname(resolve(path)));
}
