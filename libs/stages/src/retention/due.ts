import { access } from "node:fs/promises";
import { sep } from "node:path";
import { folderThatHolds } from "@internevo/data";
import {
  isFileKind,
  RETENTION_KINDS,
  retentionCutoff,
  WEIGHTS_KINDS,
  type FileKind,
  type RetentionKind,
  type RetentionSettings,
} from "@internevo/domain";
import {
  countRetainedRows,
  listRetainedJobs,
  weightsInUse,
  type Queryable,
  type RemovedAmounts,
  type RetainedJob,
} from "@internevo/store";
import { jobsDirectory } from "../directories.ts";
import { folderContents, folderPath } from "./folders.ts";

/** A part of a job that would be removed. */
export interface DuePart extends RemovedAmounts {
  readonly kind: RetentionKind;
  readonly days: number;
}

export interface DueJob extends RetainedJob {
  readonly parts: readonly DuePart[];
}

export interface RetentionScope {
  readonly db: Queryable;
  /** Undefined: it is not known here. */
  readonly dataDirectory: string | undefined;
  readonly settings: RetentionSettings;
  readonly now: Date;
  /** Ends the look between two files. */
  readonly signal: AbortSignal;
  readonly remarks: Remarks;
}

/** What was left, and why, each once; the first twenty. */
export class Remarks {
  readonly #said = new Set<string>();

  add(remark: string): void {
    if (this.#said.size < 20) this.#said.add(remark);
  }

  all(): string[] {
    return [...this.#said];
  }
}

/** Finds the jobs whose checkpoints and exports other jobs need. */
export class NeededWeights {
  readonly #jobsDirectory: string | undefined;
  readonly #holders = new Map<string, string | null>();

  constructor(dataDirectory: string | undefined) {
    this.#jobsDirectory = dataDirectory === undefined ? undefined : jobsDirectory(dataDirectory);
  }

  /**
   * Whether a job that has not ended names weights of this one. They are where the path leads into the job's folder,
   * or led there when it was submitted, whoever named it. A path that only has the job's id in it may lead there on
   * another machine. Of another project's job that says nothing: anybody may write any id.
   */
  async has(db: Queryable, { id, project }: Pick<RetainedJob, "id" | "project">): Promise<boolean> {
    for (const used of await weightsInUse(db)) {
      if (used.weightsOf === id) return true;
      if (used.project === project && used.path.split(sep).includes(id)) return true;
      if ((await this.#holderOf(used.path)) === id) return true;
    }
    return false;
  }

  /** Into whose folder a path leads; null: into nobody's. */
  async #holderOf(path: string): Promise<string | null> {
    const known = this.#holders.get(path);
    if (known !== undefined) return known;
    const holder =
      this.#jobsDirectory === undefined ? null : await folderThatHolds(this.#jobsDirectory, path);
    this.#holders.set(path, holder);
    return holder;
  }
}

const isThere = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );

/** How many jobs are looked at with one statement: each may have a hundred thousand rows to count. */
const A_PAGE = 20;

/** The files of a kind that would go; undefined where there are none, or they have to stay. */
async function dueFolder(
  { dataDirectory = "", remarks, signal }: RetentionScope,
  jobId: string,
  kind: FileKind,
  cutoff: Date,
): Promise<RemovedAmounts | undefined> {
  const folder = { dataDirectory, jobId, kind };
  const contents = await folderContents(folder, signal);
  if (contents === "link") remarks.add(`${folderPath(folder)} is left: it is a link, or no folder`);
  if (typeof contents === "string" || contents.files === 0) return undefined;
  // People put exports there long after the job's end.
  if (kind === "exports" && contents.newestMs >= cutoff.getTime()) return undefined;
  return { files: contents.files, bytes: contents.bytes, rows: 0 };
}

interface Rules {
  readonly kind: RetentionKind;
  readonly days: number;
  readonly cutoff: Date;
}

const rulesOf = ({ settings, now }: RetentionScope): Rules[] =>
  RETENTION_KINDS.flatMap((kind) => {
    const days = settings[kind];
    const cutoff = retentionCutoff(days, now);
    return days === null || cutoff === null ? [] : [{ kind, days, cutoff }];
  });

/** Why files cannot be removed here; undefined: they can. */
async function absentFiles(dataDirectory: string | undefined): Promise<string | undefined> {
  if (dataDirectory === undefined)
    return "files are left out: INTERNEVO_DATA_DIRECTORY is not set where this was looked for";
  const jobs = jobsDirectory(dataDirectory);
  return (await isThere(jobs))
    ? undefined
    : `files are left: ${jobs} is not on this machine. Run a replanner where the services keep their files, or share the folder`;
}

/**
 * What retention would remove now, the jobs whose end is longest ago first. Jobs of which nothing is left are not
 * among them.
 * @throws the signal's reason when it aborts
 */
export async function* dueJobs(scope: RetentionScope): AsyncGenerator<DueJob> {
  const { db, dataDirectory, signal, remarks } = scope;
  const rules = rulesOf(scope);
  const before = rules.map(({ cutoff }) => cutoff).sort((a, b) => b.getTime() - a.getTime())[0];
  if (!before) return;
  const absent = rules.some(({ kind }) => isFileKind(kind)) ? await absentFiles(dataDirectory) : undefined;
  const needed = new NeededWeights(dataDirectory);
  let after: RetainedJob | undefined;
  for (;;) {
    signal.throwIfAborted();
    const jobs: RetainedJob[] = await listRetainedJobs(db, { before, after, limit: A_PAGE });
    if (jobs.length === 0) return;
    if (absent !== undefined) remarks.add(absent);
    const ids = jobs.map(({ id }) => id);
    const counts = new Map<RetentionKind, ReadonlyMap<string, number>>();
    for (const { kind } of rules) counts.set(kind, await countRetainedRows(db, kind, ids));
    for (const job of jobs) {
      const parts: DuePart[] = [];
      for (const { kind, days, cutoff } of rules.filter((rule) => job.endedAt < rule.cutoff)) {
        const rows = counts.get(kind)?.get(job.id) ?? 0;
        if (rows > 0) parts.push({ kind, days, files: 0, bytes: 0, rows });
        if (!isFileKind(kind) || absent !== undefined) continue;
        const files = await dueFolder(scope, job.id, kind, cutoff);
        if (files === undefined) continue;
        if (WEIGHTS_KINDS.includes(kind) && (await needed.has(db, job))) {
          remarks.add(`${kind} of job ${job.id} are left: a job that has not ended begins with its weights`);
          continue;
        }
        parts.push({ kind, days, ...files });
      }
      if (parts.length > 0) yield { ...job, parts };
    }
    after = jobs.at(-1);
  }
}
