import { Type, type Static } from "typebox";
import { formatCounted, formatMoment } from "./figures.ts";
import { formatBytes } from "./units.ts";

/** What retention removes of ended jobs, each after days of its own. */
export const RETENTION_KINDS = ["checkpoints", "timelines", "exports", "logs", "steps"] as const;
export type RetentionKind = (typeof RETENTION_KINDS)[number];

/** Kinds that are folders of a job; the others are rows in Postgres. */
export const FILE_KINDS = ["checkpoints", "timelines", "exports"] as const satisfies readonly RetentionKind[];
export type FileKind = (typeof FILE_KINDS)[number];
export const isFileKind = (kind: RetentionKind): kind is FileKind => FILE_KINDS.some((each) => each === kind);

/** Kinds that may hold weights which other jobs begin with. */
export const WEIGHTS_KINDS: readonly RetentionKind[] = ["checkpoints", "exports"];

/** Kinds without which a job cannot go on: where its training stands, and the steps up to there. */
export const RESUME_KINDS: readonly RetentionKind[] = ["checkpoints", "steps"];

/** What each kind is, in words. */
export const RETENTION_WORDS: Readonly<Record<RetentionKind, string>> = {
  checkpoints: "Checkpoints",
  timelines: "Timelines",
  exports: "Exports",
  logs: "Log lines and progress",
  steps: "Steps and validation losses",
};

export const RETENTION_DAYS = { minimum: 1, maximum: 3650 };

const daysOf = (what: string) =>
  Type.Union([Type.Integer(RETENTION_DAYS), Type.Null()], {
    description: `days after a job's end until ${what}; null: they are kept for ever`,
  });

/** For how long an installation keeps what ended jobs leave. */
export const RetentionSettingsSchema = Type.Object(
  {
    checkpoints: daysOf("its checkpoints are removed"),
    timelines: daysOf("its timelines are removed"),
    exports: daysOf("its exports are removed; a newer file there counts instead of the end"),
    logs: daysOf("its log lines and its progress are removed"),
    steps: daysOf("its steps and validation losses are removed, all but the last"),
  } satisfies Record<RetentionKind, unknown>,
  { additionalProperties: false },
);
export type RetentionSettings = Static<typeof RetentionSettingsSchema>;

export const KEEP_FOR_EVER: RetentionSettings = {
  checkpoints: null,
  timelines: null,
  exports: null,
  logs: null,
  steps: null,
};

const DAY_MS = 86_400_000;

/** The instant before which a job must have ended; null: the kind is kept for ever. */
export const retentionCutoff = (days: number | null, now: Date): Date | null =>
  days === null ? null : new Date(now.getTime() - days * DAY_MS);

/** A removal, as it is told to who asks for what is gone. */
export interface RemovalSaid {
  /** When it was recorded, RFC 3339. */
  readonly at: string;
  /** Days after the job's end that the setting asked for. */
  readonly days: number;
}

/** "removed by retention on 2026-01-31 after 30 days". The day is in UTC. */
export const removalWords = ({ at, days }: RemovalSaid): string =>
  `removed by retention on ${at.slice(0, 10)} after ${formatCounted(days, "day")}`;

/** How much of a kind was removed, or would be. */
export interface RemovedAmounts {
  readonly files: number;
  readonly bytes: number;
  readonly rows: number;
}

/** "2 files, 1.5 GiB", "12 rows"; nothing of amounts that are 0. */
export const removedWords = ({ files, bytes, rows }: RemovedAmounts): string =>
  [
    ...(files > 0 ? [`${formatCounted(files, "file")}, ${formatBytes(bytes)}`] : []),
    ...(rows > 0 ? [formatCounted(rows, "row")] : []),
  ].join(", ") || "nothing";

/** When retention last ran, or that it does not yet; times are RFC 3339. */
export function retentionRunWords(
  run: {
    readonly askedBy: string | null;
    readonly askedAt: string;
    readonly beganAt: string | null;
    readonly endedAt: string | null;
  } | null,
): string {
  if (run === null) return "nothing was removed yet";
  const asked = run.askedBy === null ? "by the schedule" : `for ${run.askedBy}`;
  if (run.beganAt === null) return `a run waits for a replanner since ${formatMoment(run.askedAt)}, ${asked}`;
  const said = run.endedAt === null ? "runs since" : "last ran";
  return `${said} ${formatMoment(run.endedAt ?? run.beganAt)}, ${asked}`;
}
