import { Readable } from "node:stream";
import { ArtifactPageSchema, type JobDetail, type Removal } from "@internevo/contracts";
import { didYouMean, Line, ProblemError, removalWords, type RetentionKind } from "@internevo/domain";
import { getJobDetail, getStatedFields, listJobLog, type Database } from "@internevo/store";
import type { FastifyReply, FastifyRequest } from "fastify";
import { Type } from "typebox";
import { absenceOf, storedArtifacts } from "../artifacts/files.ts";
import { bytesOf, rangeOf, sizeOf, type Segment } from "../artifacts/segments.ts";
import { writtenArtifacts } from "../artifacts/written.ts";
import { noJob } from "../http/absent.ts";
import { actorOf } from "../http/auth.ts";
import { goneSignal } from "../http/gone.ts";
import type { ApiInstance } from "../http/instance.ts";
import { DEFAULT_LIMITS } from "../http/limits.ts";
import type { OpenAnswers } from "../http/open-answers.ts";
import { visibleTo } from "../http/rights.ts";
import { answers, IdParams } from "./shapes.ts";

interface ArtifactOptions {
  readonly database: Database;
  /** Undefined: the API does not know it. */
  readonly dataDirectory: string | undefined;
  /** Those that are at work. */
  readonly downloads: OpenAnswers;
}

const TYPES: Readonly<Record<string, string>> = { ".json": "application/json", ".tar": "application/x-tar" };
const typeOf = (name: string): string => TYPES[/\.\w+$/.exec(name)?.[0] ?? ""] ?? "application/octet-stream";

/** @param absent why there may be more than is seen here. @throws ProblemError always */
function noArtifact(jobId: string, name: string, known: readonly string[], absent: string | null): never {
  throw new ProblemError("not-found", `job ${jobId} has no artifact ${name}${absent ? " here" : ""}`, [
    {
      field: "artifact",
      value: name,
      message: absent ?? "names no artifact of the job",
      remedy: absent
        ? "take it from the machine where the services run, or keep their files on a shared file system"
        : `${didYouMean(name, known)}see GET /api/v1/jobs/${jobId}/artifacts`,
    },
  ]);
}

/** Of which kind an artifact is for retention; undefined for what it never takes. */
const KIND_OF: readonly (readonly [RegExp, RetentionKind])[] = [
  [/^checkpoint-/, "checkpoints"],
  [/^timeline-/, "timelines"],
  [/^export-/, "exports"],
  [/^log\.txt$/, "logs"],
  [/^(?:steps|validations)\.csv$/, "steps"],
];

/** The removal that a name's artifact may have gone with. */
function removalOf({ removed = [] }: JobDetail, name: string): Removal | undefined {
  const of = KIND_OF.find(([pattern]) => pattern.test(name))?.[1];
  return removed.find(({ kind }) => kind === of);
}

const removedArtifact = (jobId: string, name: string, removal: Removal): ProblemError =>
  new ProblemError("not-found", `job ${jobId} has no artifact ${name} any more`, [
    {
      field: "artifact",
      value: name,
      message: removalWords(removal),
      remedy: `it is gone; GET /api/v1/jobs/${jobId}/artifacts lists what is left`,
    },
  ]);

/** What is answered; nothing is read for a request that asks for the head alone, which keeps its own length. */
const bodyOf = (
  { method }: FastifyRequest,
  read: () => Iterable<string> | AsyncIterable<string | Buffer>,
): Readable => Readable.from(method === "HEAD" ? [] : read());

/** Everything that a client may do with what has a known size: one range of it, if it has not changed. */
function bodyOfSegments(
  request: FastifyRequest,
  reply: FastifyReply,
  segments: readonly Segment[],
  modifiedAt: string,
): Readable {
  const size = sizeOf(segments);
  const etag = `"${size.toString(36)}-${Date.parse(modifiedAt).toString(36)}"`;
  reply.header("etag", etag).header("accept-ranges", "bytes");
  const unchanged = [undefined, etag].includes(request.headers["if-range"] as string | undefined);
  const range = unchanged ? rangeOf(request.headers.range, size) : undefined;
  if (range === null) {
    reply.header("content-range", `bytes */${size}`);
    throw new ProblemError("bad-request", "the range is not there", [
      {
        field: "range",
        value: request.headers.range,
        message: `begins behind the end: there are ${size} bytes`,
        remedy: `ask for bytes from 0 to ${size - 1}, or for no range`,
      },
    ]);
  }
  const { first, last } = range ?? { first: 0, last: size - 1 };
  if (range) reply.code(206).header("content-range", `bytes ${first}-${last}/${size}`);
  reply.header("content-length", last - first + 1);
  return bodyOf(request, () => bytesOf(segments, { first, last }));
}

const writtenOf = async (job: JobDetail, { db }: Database) => {
  const { items } = await listJobLog(db, job.id, { limit: 1 });
  return writtenArtifacts(job, await getStatedFields(db, job.id), items.length > 0);
};

/** What is sent of an artifact, once its headers are written. */
async function bodyOfArtifact(
  request: FastifyRequest,
  reply: FastifyReply,
  { database, dataDirectory }: ArtifactOptions,
  job: JobDetail,
  name: string,
): Promise<Readable> {
  const written = await writtenOf(job, database);
  const found = written.find((each) => each.name === name);
  const stored = found || dataDirectory === undefined ? [] : await storedArtifacts(dataDirectory, job.id);
  const file = stored.find((each) => each.name === name);
  if (!found && !file) {
    const removal = removalOf(job, name);
    if (removal) throw removedArtifact(job.id, name, removal);
    const known = [...written, ...stored].map((each) => each.name);
    return noArtifact(job.id, name, known, await absenceOf(job, dataDirectory));
  }
  reply
    .type(found?.mediaType ?? typeOf(name))
    .header("content-disposition", `attachment; filename="${name}"`);
  const { modifiedAt = null } = file ?? found ?? {};
  const segments = file?.segments ?? found?.segments?.();
  if (segments) return bodyOfSegments(request, reply, segments, modifiedAt ?? job.createdAt);
  const { write } = found ?? {};
  return bodyOf(request, () => write?.(database) ?? []);
}

/** Sends what counts until it has ended; what is left counts until the page has come that it waits for. */
function sendCounted(reply: FastifyReply, body: Readable, end: () => void): FastifyReply {
  const gone = goneSignal(reply);
  gone.throwIfAborted();
  body.once("close", end);
  gone.addEventListener("abort", () => body.destroy(), { once: true });
  return reply.send(body);
}

/** What a job leaves: its file, metrics and log, and the timelines, checkpoints and exports on disk. */
export function registerArtifacts(app: ApiInstance, options: ArtifactOptions): void {
  const { database, dataDirectory, downloads } = options;
  const jobOf = async (request: FastifyRequest, id: string): Promise<JobDetail> => {
    const job = await getJobDetail(database.db, id, visibleTo(actorOf(request)));
    if (!job) throw noJob(id);
    return job;
  };

  app.get(
    "/jobs/:id/artifacts",
    {
      config: { role: "viewer", scope: "job" },
      schema: {
        tags: ["jobs"],
        summary: "What a job leaves: its file, metrics, log, timelines, checkpoints and exports",
        params: IdParams,
        response: answers({ 200: ArtifactPageSchema }),
      },
    },
    async (request) => {
      const job = await jobOf(request, request.params.id);
      const stored = dataDirectory === undefined ? [] : await storedArtifacts(dataDirectory, job.id);
      const items = [...(await writtenOf(job, database)), ...stored].map(
        ({ name, kind, bytes, modifiedAt }) => ({ name, kind, bytes, modifiedAt }),
      );
      const { removed = [] } = job;
      return { items, nextCursor: null, absent: await absenceOf(job, dataDirectory), removed };
    },
  );

  app.get(
    "/jobs/:id/artifacts/:artifact",
    {
      config: { role: "viewer", scope: "job" },
      schema: {
        tags: ["jobs"],
        summary: "One of a job's artifacts, as a file; a folder as a tar archive",
        description:
          "`Content-Length` is there for job.yaml, and where the list says the bytes; of those, `Range` asks for a " +
          "part, and `If-Range` with its ETag for that part of the same file only. " +
          `A token downloads ${DEFAULT_LIMITS.downloadsOfOneToken} files at once, and the tokens of a project ` +
          `together a quarter of the ${DEFAULT_LIMITS.downloads} of all tokens. One more is a 429 with ` +
          "`Retry-After`, and of all a 503.",
        params: Type.Object({ ...IdParams.properties, artifact: Line(300) }),
        response: {
          ...answers({}),
          200: {
            description: "OK",
            content: { "application/octet-stream": { schema: { type: "string", format: "binary" } } },
          },
        },
      },
    },
    async (request, reply) => {
      const end = downloads.begin(actorOf(request));
      try {
        const job = await jobOf(request, request.params.id);
        const body = await bodyOfArtifact(request, reply, options, job, request.params.artifact);
        return sendCounted(reply, body, end);
      } catch (error) {
        end();
        throw error;
      }
    },
  );
}
