import { STATUS_CODES } from "node:http";
import { ProblemSchema } from "@internevo/contracts";
import { Line } from "@internevo/domain";
import { Type, type TSchema } from "typebox";

export const IdParams = Type.Object({ id: Line(100) });

const idempotencyKey = {
  "idempotency-key": Type.Optional(
    Type.String({
      description:
        "1 to 200 visible characters: the same key with the same request gives the same answer, and acts once",
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
