import { formatInteger, ProblemError } from "@internevo/domain";
import {
  answerIdempotencyKey,
  claimIdempotencyKey,
  KEPT_ANSWER_HOURS,
  lookUpIdempotencyKey,
  MOST_KEPT_ANSWER_BYTES,
  MOST_KEPT_ANSWERS,
  recordAudit,
  type Database,
  type KeyClaim,
  type KeyedAnswer,
  type TokenOwner,
  type Transaction,
} from "@internevo/store";
import type { FastifyReply, FastifyRequest } from "fastify";
import { countedAs } from "../work/caller.ts";
import { actorOf } from "./auth.ts";

/** What a mutation answers. */
export interface MutationResult {
  readonly status: number;
  readonly body: unknown;
  /** The id of what was changed, for the audit. */
  readonly target: string | null;
  readonly location?: string;
  readonly etag?: string;
}

const KEY = /^[\x21-\x7e]{1,200}$/;

function keyOf(request: FastifyRequest): string | undefined {
  const key = request.headers["idempotency-key"];
  if (key === undefined) return undefined;
  if (typeof key === "string" && KEY.test(key)) return key;
  throw new ProblemError("bad-request", "the Idempotency-Key is not valid", [
    {
      field: "idempotency-key",
      value: key,
      message: "is not 1 to 200 visible characters",
      remedy: "send for example a UUID",
    },
  ]);
}

/**
 * Whose a key is: of a token that an admin made, or of a person, whatever number of sessions it has. A session moves
 * between the projects of its person, and what it asks for belongs to the project that it is in: a key of one project
 * answers nothing in another. A token that an admin made stays where it is.
 */
const holderOf = (owner: TokenOwner): string =>
  owner.kind === "token" || owner.project === null
    ? countedAs(owner)
    : `${countedAs(owner)} in ${owner.project}`;

/** In seconds: kept answers are forgotten once an hour. */
const FORGOTTEN_EVERY = 3600;

/** @throws ProblemError `rate-limited` always */
function refuseOneMore(reply: FastifyReply, owner: TokenOwner, key: string): never {
  reply.header("retry-after", FORGOTTEN_EVERY);
  const whose = owner.userId === null ? "this token has" : "your sessions have";
  const bound = `${formatInteger(MOST_KEPT_ANSWERS)} answers, or ${MOST_KEPT_ANSWER_BYTES / 1e6} MB of them,`;
  throw new ProblemError("rate-limited", `${whose} ${bound} kept for Idempotency-Keys; no more are kept`, [
    {
      field: "idempotency-key",
      value: key,
      message: "would need one more answer to be kept",
      remedy: `send the request without a key, or wait: each answer is forgotten after ${KEPT_ANSWER_HOURS} hours`,
    },
  ]);
}

/**
 * What makes two requests the same: JSON with its keys sorted, so that another order of fields is no other
 * request.
 */
function requestText(request: FastifyRequest): string {
  const sorted = (_: string, value: unknown): unknown =>
    typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
      : value;
  return `${request.method} ${request.url}\n${JSON.stringify(request.body ?? null, sorted)}`;
}

/** For example `POST /api/v1/jobs/:id/cancel`. */
export const actionOf = (request: FastifyRequest): string =>
  `${request.method} ${request.routeOptions.url ?? request.url}`;

/**
 * Runs a mutation in one transaction with its audit row and, when the request has an `Idempotency-Key`, the
 * key's answer: a repeated request waits for the first and gets its answer.
 * @throws ProblemError `conflict` when the key was used for another request; `rate-limited` when its holder has as many
 * answers kept as it may; whatever `work` throws, with nothing stored.
 */
export async function mutate(
  database: Database,
  request: FastifyRequest,
  reply: FastifyReply,
  work: (tx: Transaction) => Promise<MutationResult>,
): Promise<unknown> {
  return mutateAs(keyOf(request), database, request, reply, work);
}

/** {@link mutate} without a key, for answers that nothing may store, or that are too large to keep. */
export async function mutateUnkeyed(
  database: Database,
  request: FastifyRequest,
  reply: FastifyReply,
  work: (tx: Transaction) => Promise<MutationResult>,
): Promise<unknown> {
  return mutateAs(undefined, database, request, reply, work);
}

async function mutateAs(
  key: string | undefined,
  database: Database,
  request: FastifyRequest,
  reply: FastifyReply,
  work: (tx: Transaction) => Promise<MutationResult>,
): Promise<unknown> {
  const actor = actorOf(request);
  const run = (): Promise<KeyedAnswer> =>
    database.transaction(async (tx) => {
      if (key !== undefined) {
        const claim = await claimIdempotencyKey(tx, {
          actor: holderOf(actor),
          key,
          text: requestText(request),
        });
        const answer = answerOf(claim, key);
        if (answer) return answer;
        if (claim.kind === "no-room") refuseOneMore(reply, actor, key);
        if (claim.kind === "in-progress")
          throw new ProblemError("conflict", "a request with this Idempotency-Key is at work", [
            {
              field: "idempotency-key",
              value: key,
              message: "is in use now",
              remedy: "repeat the request shortly",
            },
          ]);
      }
      const result = await work(tx);
      const answer: KeyedAnswer = {
        status: result.status,
        body: result.body ?? null,
        location: result.location ?? null,
        etag: result.etag ?? null,
      };
      if (key !== undefined) await answerIdempotencyKey(tx, { actor: holderOf(actor), key }, answer);
      await recordAudit(tx, {
        actor: actor.name,
        role: actor.role,
        action: actionOf(request),
        target: result.target,
        project: request.project,
        status: result.status,
        traceId: request.trace.traceId,
      });
      return answer;
    });
  return send(reply, await run());
}

/**
 * The answer to a key, where there is one. @throws ProblemError `conflict` when the key was used for another
 * request
 */
function answerOf(claim: KeyClaim, key: string): KeyedAnswer | undefined {
  if (claim.kind === "answered") return claim.answer;
  if (claim.kind !== "other-request") return undefined;
  throw new ProblemError("conflict", "the Idempotency-Key was used for another request", [
    {
      field: "idempotency-key",
      value: key,
      message: "was used with another path or body",
      remedy: "use a new key for a new request",
    },
  ]);
}

function send(reply: FastifyReply, answer: KeyedAnswer): unknown {
  reply.code(answer.status);
  if (answer.location !== null) reply.header("location", answer.location);
  if (answer.etag !== null) reply.header("etag", answer.etag);
  return answer.status === 204 ? undefined : answer.body;
}

/**
 * {@link mutate} behind checks of what may change from one request to the next, such as whether a file is
 * there: a request that was answered gets its answer whatever they would say now.
 */
export async function mutateChecked<C>(
  database: Database,
  request: FastifyRequest,
  reply: FastifyReply,
  check: () => Promise<C>,
  work: (tx: Transaction, checked: C) => Promise<MutationResult>,
): Promise<unknown> {
  const key = keyOf(request);
  const known =
    key === undefined
      ? undefined
      : await lookUpIdempotencyKey(database.db, {
          actor: holderOf(actorOf(request)),
          key,
          text: requestText(request),
        });
  const answer = known && key !== undefined ? answerOf(known, key) : undefined;
  if (answer) return send(reply, answer);
  const checked = await check();
  return mutate(database, request, reply, (tx) => work(tx, checked));
}
