import {
  JobDetailSchema,
  RetentionChangeSchema,
  RetentionPreviewSchema,
  RetentionRunSchema,
  RetentionSchema,
  RetentionTrialSchema,
  type RetentionPreview,
  type RetentionTrial,
} from "@internevo/contracts";
import {
  ProblemError,
  RETENTION_DAYS,
  RETENTION_KINDS,
  type RetentionKind,
  type RetentionSettings,
} from "@internevo/domain";
import { dueJobs, Remarks, type DueJob } from "@internevo/stages";
import {
  addAmounts,
  askRetentionRun,
  decodeCursor,
  encodeCursor,
  getJobDetail,
  getRetentionSettings,
  keepsEverything,
  lastRetentionRun,
  lockJobState,
  noTotals,
  pageLimit,
  setKeep,
  setRetentionSettings,
  type Database,
  type PageRequest,
} from "@internevo/store";
import { Type } from "typebox";
import { noJob } from "../http/absent.ts";
import { actorOf } from "../http/auth.ts";
import { etagOf } from "../http/etag.ts";
import type { ApiInstance } from "../http/instance.ts";
import { mutate } from "../http/mutations.ts";
import { PageQuery } from "../http/pages.ts";
import { visibleTo } from "../http/rights.ts";
import { goneSignal } from "../http/gone.ts";
import { answers, headers, IdParams } from "./shapes.ts";

const tags = ["retention"];

/** A preview that takes longer says what it has found. */
const PREVIEW_MILLISECONDS = 10_000;

export interface RetentionOptions {
  readonly database: Database;
  /** Undefined: the API does not know it. */
  readonly dataDirectory: string | undefined;
}

/** @throws ProblemError `bad-request` for what is neither days nor `forever` */
function triedDays(kind: RetentionKind, text: string): number | null {
  const { minimum, maximum } = RETENTION_DAYS;
  if (text === "forever") return null;
  if (/^\d{1,9}$/.test(text) && Number(text) >= minimum && Number(text) <= maximum) return Number(text);
  throw new ProblemError("bad-request", `${kind} is not valid`, [
    {
      field: kind,
      value: text,
      message: "is no number of days",
      remedy: `give an integer from ${minimum} to ${maximum}, or forever`,
    },
  ]);
}

const tried = (settings: RetentionSettings, trial: RetentionTrial): RetentionSettings => ({
  ...settings,
  ...Object.fromEntries(
    RETENTION_KINDS.flatMap((kind) => {
      const text = trial[kind];
      return text === undefined ? [] : [[kind, triedDays(kind, text)]];
    }),
  ),
});

const itemOf = ({ id, name, project, endedAt, parts }: DueJob): RetentionPreview["items"][number] => ({
  jobId: id,
  jobName: name,
  project,
  endedAt: endedAt.toISOString(),
  removes: [...parts],
});

/** Whether a job's end is behind a cursor's. */
const isBehind = (job: DueJob, after: ReturnType<typeof decodeCursor>): boolean =>
  after === undefined ||
  job.endedAt.getTime() > after.at.getTime() ||
  (job.endedAt.getTime() === after.at.getTime() && job.id > after.id);

/** @param gone ends the look, without an answer */
async function preview(
  { database, dataDirectory }: RetentionOptions,
  settings: RetentionSettings,
  request: PageRequest,
  gone: AbortSignal,
): Promise<RetentionPreview> {
  const limit = pageLimit(request);
  const after = decodeCursor(request.cursor);
  const [totals, items, remarks] = [noTotals(), [] as DueJob[], new Remarks()];
  const late = AbortSignal.timeout(PREVIEW_MILLISECONDS);
  const signal = AbortSignal.any([gone, late]);
  let isWhole = true;
  try {
    const now = new Date();
    for await (const job of dueJobs({ db: database.db, dataDirectory, settings, now, signal, remarks })) {
      for (const part of job.parts) totals[part.kind] = addAmounts(totals[part.kind], part);
      if (items.length <= limit && isBehind(job, after)) items.push(job);
    }
  } catch (error) {
    if (!late.aborted || gone.aborted) throw error;
    isWhole = false;
  }
  const last = items.length > limit ? items[limit - 1] : undefined;
  return {
    settings,
    totals,
    isWhole,
    remarks: remarks.all(),
    items: items.slice(0, limit).map(itemOf),
    nextCursor: last ? encodeCursor(last.endedAt, last.id) : null,
  };
}

/** For how long the installation keeps what ended jobs leave. */
export function registerRetentionRoutes(app: ApiInstance, options: RetentionOptions): void {
  const { database } = options;
  app.get(
    "/retention",
    {
      config: { role: "viewer", scope: "any" },
      schema: {
        tags,
        summary: "For how long the installation keeps what ended jobs leave, and what it removed last",
        response: answers({ 200: RetentionSchema }),
      },
    },
    async (request) => ({
      settings: await getRetentionSettings(database.db),
      // It names jobs, files and people of all projects.
      ...(visibleTo(actorOf(request)) === null ? { lastRun: await lastRetentionRun(database.db) } : {}),
    }),
  );
  app.patch(
    "/retention",
    {
      config: { role: "admin", scope: "installation" },
      schema: {
        tags,
        summary: "Change for how long what ended jobs leave is kept",
        description:
          "What is left out stays as it is; null keeps a kind for ever. The next run, within a day, goes by it.",
        body: RetentionChangeSchema,
        response: answers({ 200: RetentionSchema }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const settings = await setRetentionSettings(tx, request.body);
        return { status: 200, body: { settings, lastRun: await lastRetentionRun(tx) }, target: "retention" };
      }),
  );
  app.get(
    "/retention/preview",
    {
      config: { role: "admin", scope: "installation" },
      schema: {
        tags,
        summary: "What would be removed now, by what is set or by other days; nothing is removed",
        querystring: Type.Object(
          { ...PageQuery, ...RetentionTrialSchema.properties },
          { additionalProperties: false },
        ),
        response: answers({ 200: RetentionPreviewSchema }),
      },
    },
    async (request, reply) => {
      const settings = tried(await getRetentionSettings(database.db), request.query);
      return preview(options, settings, request.query, goneSignal(reply));
    },
  );
  registerRun(app, options);
  registerKeep(app, options);
}

function registerRun(app: ApiInstance, { database }: RetentionOptions): void {
  app.post(
    "/retention/run",
    {
      config: { role: "admin", scope: "installation" },
      schema: {
        tags,
        summary: "Remove what is due now, and not only at the daily time",
        description: "A replanner takes it within seconds. One that goes on already is the answer.",
        headers: headers.idempotent,
        response: answers({ 202: RetentionRunSchema }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        if (keepsEverything(await getRetentionSettings(tx)))
          throw new ProblemError("conflict", "everything is kept for ever: there is nothing to remove", [
            {
              field: "settings",
              value: null,
              message: "names no days for any kind",
              remedy: 'set days first, for example PATCH /api/v1/retention with {"checkpoints": 90}',
            },
          ]);
        const run = await askRetentionRun(tx, actorOf(request).name);
        return { status: 202, body: run, target: String(run.id) };
      }),
  );
}

function registerKeep(app: ApiInstance, { database }: RetentionOptions): void {
  app.post(
    "/jobs/:id/keep",
    {
      config: { role: "operator", scope: "job" },
      schema: {
        tags,
        summary: "Exempt a job from retention, or no more",
        headers: headers.idempotent,
        params: IdParams,
        body: Type.Object({ keep: Type.Boolean() }, { additionalProperties: false }),
        response: answers({ 200: JobDetailSchema }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const { id } = request.params;
        if ((await lockJobState(tx, id)) === undefined) throw noJob(id);
        await setKeep(tx, id, request.body.keep);
        const job = await getJobDetail(tx, id, visibleTo(actorOf(request)));
        if (!job) throw noJob(id);
        return { status: 200, body: job, target: id, etag: etagOf(job.version) };
      }),
  );
}
