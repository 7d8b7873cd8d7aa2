import { CHECKPOINTS, CHECKPOINT_NAME, EXPORTS, JOBS, MEASURED_SO_FAR, TIMELINES } from "@internevo/stages";

const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Whether a file or folder of a job may have a name in a backup: it leads nowhere, and hides nothing. */
export const isPlainName = (name: string): boolean =>
  name !== "" && name !== "." && name !== ".." && !/[\p{Cc}/]/u.test(name);

/** Whether a file among a job's timelines is one. */
export const isTimeline = (name: string): boolean => name.endsWith(".json") && isPlainName(name);

/** Whether a file of a job, or of a workload, has points that were measured so far. */
export const isMeasuredSoFar = (name: string): boolean => MEASURED_SO_FAR.test(name) && isPlainName(name);

/**
 * Whether a path in a data directory is one that backups have. Only these are taken, and only these are restored:
 * whatever else lies there tells the stack what to run.
 */
export function isFileOfJobs(path: string): boolean {
  const [jobs, id = "", kind = "", ...inner] = path.split("/");
  if (jobs !== JOBS || !ID.test(id)) return false;
  const [name = "", ...deeper] = inner;
  if (inner.length === 0) return isMeasuredSoFar(kind);
  if (!inner.every(isPlainName)) return false;
  if (kind === CHECKPOINTS) return CHECKPOINT_NAME.test(name) && deeper.length > 0;
  if (kind === TIMELINES) return isTimeline(name) && deeper.length === 0;
  return kind === EXPORTS;
}
