import { Type, type Static } from "typebox";

/** What lists call jobs that wait for hosts, beside the states of a job. */
export const QUEUED_STATE = "queued";

/** Where a job stands among those that wait for one of its hosts. */
export const QueuePositionSchema = Type.Object({
  position: Type.Integer({ minimum: 1, description: "1: the next that gets its hosts" }),
  waitingSince: Type.String({ format: "date-time" }),
  limit: Type.Union([Type.String(), Type.Null()], {
    description: "the quota of its project that it waits for, in words; null: it waits for its hosts",
  }),
  gaveWayTo: Type.Union([Type.String(), Type.Null()], {
    description: "the job that it gave its hosts up for, in words; null: it gave way to none in this wait",
  }),
});
export type QueuePosition = Static<typeof QueuePositionSchema>;

/** As the position, with who goes before. */
export const QueuePlaceSchema = Type.Object({
  ...QueuePositionSchema.properties,
  hosts: Type.Array(Type.String(), { description: "the hosts that it waits for, all at once" }),
  behind: Type.Array(
    Type.Object({
      kind: Type.Enum(["job", "workload"]),
      id: Type.String(),
      name: Type.String(),
      holds: Type.Boolean({
        description: "true: it has one of the hosts; false: it waits too, with an earlier place",
      }),
    }),
    {
      description:
        "who goes before, of what the token may see: first those that hold a host, then those that wait; ten at most",
    },
  ),
  behindCount: Type.Integer({ description: "how many go before" }),
  startsAt: Type.Union([Type.String({ format: "date-time" }), Type.Null()], {
    description:
      "when it will probably get its hosts, by the steps that those before it have left; null while one of them has no chosen plan",
  }),
});
export type QueuePlace = Static<typeof QueuePlaceSchema>;

const ordinals = new Intl.PluralRules("en", { type: "ordinal" });
const SUFFIXES: Readonly<Record<Intl.LDMLPluralRule, string>> = {
  one: "st",
  two: "nd",
  few: "rd",
  other: "th",
  zero: "th",
  many: "th",
};
const ordinal = (n: number): string => `${n}${SUFFIXES[ordinals.select(n)]}`;

/** `job urgent`, as whoever sees the job that gave way may know it. @param name null: of another project */
export const gaveWayToWords = (name: string | null): string =>
  name === null ? "a job of another project" : `job ${name}`;

/** `gave way to job urgent`. */
export const gaveWayWords = (to: string): string => `gave way to ${to}`;

/** What a job that holds its hosts is about to do for another. */
export const askedToGiveWayWords = (to: string): string =>
  `asked to give way to ${to}: it writes a checkpoint and waits again`;

const withGivingWay = (words: string, gaveWayTo: string | null): string =>
  gaveWayTo === null ? words : `${words}, ${gaveWayWords(gaveWayTo)}`;

/**
 * `next`, `3rd in the queue`, or the quota that keeps it waiting, and to whom it gave way: a position as a list
 * shows it.
 */
export const positionWords = ({
  position,
  limit,
  gaveWayTo,
}: Pick<QueuePosition, "position" | "limit" | "gaveWayTo">): string =>
  withGivingWay(limit ?? (position === 1 ? "next" : `${ordinal(position)} in the queue`), gaveWayTo);

/** `next for its hosts, behind job a (at work)`: a place in one line. */
export function queueWords(place: QueuePlace): string {
  const { position, hosts, limit, gaveWayTo } = place;
  const ofHosts = (): string =>
    `${position === 1 ? "next" : ordinal(position)} for ${hosts.join(", ")}${behindWords(place)}`;
  return withGivingWay(limit ?? ofHosts(), gaveWayTo);
}

/** When a job that waits will probably start, in a few words; `formatted` writes an instant. */
export const startWords = ({ startsAt }: QueuePlace, formatted: (instant: string) => string): string =>
  startsAt === null ? "its start is not known yet" : `starts at about ${formatted(startsAt)}`;

function behindWords({ behind, behindCount }: QueuePlace): string {
  const shown = behind
    .slice(0, 3)
    .map(({ kind, name, holds }) => `${kind} ${name}${holds ? " (has them)" : ""}`);
  const more = behindCount - shown.length;
  if (shown.length === 0) return more > 0 ? `, behind ${more} of other projects` : "";
  return `, behind ${shown.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}
