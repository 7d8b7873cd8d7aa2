import { readdirSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { Type, type Static } from "typebox";
import { bootId, killRun } from "./processes.ts";
import { readRecordFile, writeRecordFile } from "./record-file.ts";

/** What a later supervisor needs to find and end what a killed one left behind. */
export const RunRecordSchema = Type.Object(
  {
    marker: Type.String({ minLength: 1, description: "value of INTERNEVO_RUN in every process of the run" }),
    bootId: Type.String(),
    process: Type.Union(
      [
        Type.Object({ pid: Type.Integer(), startTicks: Type.Integer() }, { additionalProperties: false }),
        Type.Null(),
      ],
      { description: "the launcher; null until it has started" },
    ),
    command: Type.Array(Type.String()),
    startedAt: Type.String(),
    hosts: Type.Optional(
      Type.Array(Type.String(), {
        description: "that its ranks run on; older versions did not say: this machine",
      }),
    ),
    scratch: Type.Array(Type.String(), { description: "directories that end with the run" }),
    cancelCommand: Type.Optional(Type.Null({ description: "left in records by older versions" })),
  },
  { additionalProperties: false },
);
export type RunRecord = Static<typeof RunRecordSchema>;

const FILE = "run.json";

export const writeRunRecord = (runDirectory: string, record: RunRecord): void =>
  writeRecordFile(join(runDirectory, FILE), record);

/** The record of a run that has not been ended in order; undefined when there is none. */
export const readRunRecord = (runDirectory: string): RunRecord | undefined =>
  readRecordFile(RunRecordSchema, join(runDirectory, FILE));

/** Scratch directories carry this prefix; nothing else is ever deleted on the word of a record. */
export const SCRATCH_PREFIX = "internevo-run-";

/**
 * Ends what is kept of a run. The record in its place may be of a later run by now, where this one's owner
 * was replaced: that one stays.
 */
export function removeRunRecord(runDirectory: string, record: RunRecord): void {
  for (const directory of record.scratch) {
    if (basename(directory).startsWith(SCRATCH_PREFIX)) rmSync(directory, { recursive: true, force: true });
  }
  if (readRunRecord(runDirectory)?.marker === record.marker)
    rmSync(join(runDirectory, FILE), { force: true });
}

/**
 * Ends what a killed supervisor left in a run directory: its processes, its scratch directories and its
 * record. The caller must hold the lease on the run: a live owner's processes would be killed as well.
 * @returns how many processes were killed.
 * @throws Error when a process cannot be killed.
 */
export async function killLeftovers(runDirectory: string): Promise<number> {
  const record = readRunRecord(runDirectory);
  if (!record) return 0;
  let killed = 0;
  if (record.bootId === bootId()) {
    const result = await killRun(record.marker);
    killed = result.killed;
    if (result.left.length > 0)
      throw new Error(
        `processes ${result.left.map((entry) => entry.pid).join(", ")} of ${runDirectory} do not end after SIGKILL`,
      );
  }
  removeRunRecord(runDirectory, record);
  return killed;
}

/** Whether ranks of a recorded run are on one of these hosts. */
const isOnHosts = (record: RunRecord, hosts: readonly string[], ownHost: string): boolean =>
  (record.hosts ?? [ownHost]).some((host) => hosts.includes(host));

/**
 * {@link killLeftovers} before a launch on hosts. A run on other hosts may have a live owner, whose leases the
 * caller does not hold: it is left alone.
 */
export async function killLeftoversBefore(
  runDirectory: string,
  hosts: readonly string[],
  ownHost: string,
): Promise<void> {
  const record = readRunRecord(runDirectory);
  if (record && isOnHosts(record, hosts, ownHost)) await killLeftovers(runDirectory);
}

/**
 * Ends what killed supervisors left on hosts, whichever clusters' names they launched under.
 * The caller must hold the leases of these hosts: no other launch on any of them then has a live owner.
 * @param parent its directories hold a run directory `run` each.
 * @returns how many processes were killed.
 */
export async function killLeftoversOn(
  parent: string,
  hosts: readonly string[],
  ownHost: string,
): Promise<number> {
  let names: string[];
  try {
    names = readdirSync(parent);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return 0;
    throw error;
  }
  let killed = 0;
  for (const name of names) {
    const runDirectory = join(parent, name, "run");
    const record = readRunRecord(runDirectory);
    // Of another boot, or of a service on another machine that shares the directory: nothing here is of that
    // run.
    if (record?.bootId === bootId() && isOnHosts(record, hosts, ownHost))
      killed += await killLeftovers(runDirectory);
  }
  return killed;
}
