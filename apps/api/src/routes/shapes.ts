import { STATUS_CODES } from "node:http";
import { ProblemSchema } from "@internevo/contracts";
import { Line } from "@internevo/domain";
import { KEPT_ANSWER_HOURS, MOST_KEPT_ANSWER_BYTES, MOST_KEPT_ANSWERS } from "@internevo/store";
import { Type, type TSchema } from "typebox";
import { DEFAULT_LIMITS } from "../http/limits.ts";

export const IdParams = Type.Object({ id: Line(100) });

const idempotencyKey = {
  "idempotency-key": Type.Optional(
    Type.String({
      description:
        "1 to 200 visible characters: the same key with the same request gives the same answer, and acts once. " +
        `Answers are kept for ${KEPT_ANSWER_HOURS} hours, ${MOST_KEPT_ANSWERS} of a token or ` +
        `${MOST_KEPT_ANSWER_BYTES / 1e6} MB of them; a request with one more key is a 429`,
    }),
  ),
};
export const headers = {
  idempotent: Type.Object(idempotencyKey),
  conditional: Type.Object({
    ...idempotencyKey,
    "if-match": Type.Optional(
      Type.String({ description: "the ETag that was read: another version is refused with 412" }),
    ),
  }),
  stream: Type.Object({
    "last-event-id": Type.Optional(Type.String({ description: "number of the last event that was seen" })),
  }),
};

const { atOnce: LONG_READS, mostOfOne: MOST_LONG_READS } = DEFAULT_LIMITS.longReads;
/** What the documentation says of a route that reads for long. */
export const LONG_READ =
  `It may take seconds: one of a project's tokens is at work at once, ${LONG_READS} of all, and others wait. ` +
  `Beyond ${MOST_LONG_READS} of a token that are at work or wait, one more is a 429 with \`Retry-After\`.`;

/** The answers of a route: its own, and problems. */
export const answers = (own: Readonly<Record<number, TSchema>>): Record<string, unknown> => ({
  ...Object.fromEntries(
    Object.entries(own).map(([status, schema]) => [
      status,
      {
        description: STATUS_CODES[status] ?? status,
        ...(status === "204" ? { type: "null" } : { content: { "application/json": { schema } } }),
      },
    ]),
  ),
  default: {
    description: "A problem (RFC 9457)",
    content: { "application/problem+json": { schema: ProblemSchema } },
  },
});

/** A body's schema with an example, for the documentation. */
export const withExample = <S extends TSchema>(schema: S, example: unknown): S => ({
  ...schema,
  examples: [example],
});
