import type { Artifact, JobDetail, JobLogLine } from "@internevo/contracts";
import {
  csvHead,
  csvRows,
  jobToChange,
  type RetentionKind,
  type StepMetric,
  type ValidationLoss,
} from "@internevo/domain";
import {
  listJobLogAfter,
  listStepMetrics,
  listValidations,
  readHistory,
  type Database,
  type Page,
  type Queryable,
} from "@internevo/store";
import { jobYaml } from "./job-yaml.ts";
import type { Segment } from "./segments.ts";

/** What is written from the database when it is asked for. */
export interface WrittenArtifact extends Artifact {
  readonly mediaType: string;
  /** Makes it, where it is short; otherwise {@link write} is its text, in pieces. Whoever lists it makes nothing. */
  readonly segments?: () => readonly Segment[];
  readonly write?: (database: Database) => AsyncGenerator<string>;
}

const A_PAGE = 1000;
const STEP_FIELDS = [
  "step",
  "loss",
  "gradientNorm",
  "learningRate",
  "stepTimeSeconds",
  "tokensPerSecond",
  "exposedCommunicationSeconds",
  "attempt",
  "at",
] as const satisfies readonly (keyof StepMetric)[];
const VALIDATION_FIELDS = [
  "step",
  "loss",
  "tokens",
  "seconds",
  "attempt",
  "at",
] as const satisfies readonly (keyof ValidationLoss)[];

type History<T> = (
  db: Queryable,
  jobId: string,
  request: { readonly after?: number; readonly limit: number },
) => Promise<Page<T>>;

/** A job's history as CSV, page by page. */
const csvOf = <T extends object>(history: History<T>, jobId: string, fields: readonly (keyof T & string)[]) =>
  async function* (database: Database): AsyncGenerator<string> {
    yield csvHead(fields);
    let after: string | null | undefined;
    do {
      const request = { limit: A_PAGE, ...(after === undefined ? {} : { after: Number(after) }) };
      const page: Page<T> = await readHistory(database, () => history(database.db, jobId, request));
      yield csvRows(page.items as Parameters<typeof csvRows>[0], fields);
      after = page.nextCursor;
    } while (after !== null);
  };

const lineOf = ({ at, level, source, message }: JobLogLine): string =>
  `${at} ${level} ${source}: ${message.replaceAll("\n", "\n  ")}\n`;

const logOf = (jobId: string) =>
  async function* (database: Database): AsyncGenerator<string> {
    let after = 0;
    for (;;) {
      const seen = after;
      const lines = await readHistory(database, () => listJobLogAfter(database.db, jobId, seen, A_PAGE));
      if (lines.length === 0) return;
      after = lines.at(-1)?.id ?? after;
      yield lines.map(lineOf).join("");
    }
  };

/**
 * What can be written of a job. @param stated fields that its file stated @param hasLog whether a log line is stored
 */
export function writtenArtifacts(
  job: JobDetail,
  stated: readonly string[],
  hasLog: boolean,
): WrittenArtifact[] {
  const later = { bytes: null, modifiedAt: null };
  const isRemoved = (of: RetentionKind) => job.removed?.some(({ kind }) => kind === of) ?? false;
  const hasSteps = !isRemoved("steps");
  return [
    {
      name: "job.yaml",
      kind: "job",
      bytes: null,
      modifiedAt: job.createdAt,
      mediaType: "application/yaml; charset=utf-8",
      segments: () => [{ bytes: Buffer.from(jobYaml(jobToChange(job.spec, stated))) }],
    },
    ...(hasSteps && job.lastStep > 0
      ? [
          {
            name: "steps.csv",
            kind: "metrics" as const,
            ...later,
            mediaType: "text/csv; charset=utf-8",
            write: csvOf(listStepMetrics, job.id, STEP_FIELDS),
          },
        ]
      : []),
    ...(hasSteps && job.lastValidation
      ? [
          {
            name: "validations.csv",
            kind: "metrics" as const,
            ...later,
            mediaType: "text/csv; charset=utf-8",
            write: csvOf(listValidations, job.id, VALIDATION_FIELDS),
          },
        ]
      : []),
    // A job that was let go on since then has a log again.
    ...(hasLog || !isRemoved("logs")
      ? [
          {
            name: "log.txt",
            kind: "log" as const,
            ...later,
            mediaType: "text/plain; charset=utf-8",
            write: logOf(job.id),
          },
        ]
      : []),
  ];
}
