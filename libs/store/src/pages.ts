import { ProblemError } from "@internevo/domain";

export interface PageRequest {
  /** From the page before; absent or null: the first page. */
  readonly cursor?: string | null;
  /** 1 to 200. Default 50. */
  readonly limit?: number;
}
export interface Page<T> {
  readonly items: T[];
  readonly nextCursor: string | null;
}

export const pageLimit = (request: PageRequest): number => {
  const limit = request.limit ?? 50;
  if (!Number.isInteger(limit) || limit < 1 || limit > 200) {
    throw new ProblemError("bad-request", "limit is not valid", [
      { field: "limit", value: limit, message: "is not a page size", remedy: "use 1 to 200" },
    ]);
  }
  return limit;
};

export const encodeCursor = (at: Date, id: string): string =>
  Buffer.from(`${at.getTime()}.${id}`).toString("base64url");

/** @throws ProblemError `bad-request` for a cursor that no page gave. */
export function decodeCursor(
  cursor: string | null | undefined,
): { readonly at: Date; readonly id: string } | undefined {
  if (cursor === undefined || cursor === null) return undefined;
  const match = /^(\d{1,13})\.([0-9a-f-]{36})$/.exec(Buffer.from(cursor, "base64url").toString("utf8"));
  if (!match?.[1] || !match[2] || !isUuid(match[2])) {
    throw new ProblemError("bad-request", "cursor is not valid", [
      {
        field: "cursor",
        value: cursor,
        message: "was not made by a page of this list",
        remedy: "use nextCursor of the page before, or none",
      },
    ]);
  }
  return { at: new Date(Number(match[1])), id: match[2] };
}

/** Cuts `limit + 1` rows to a page. */
export function pageOf<Row, T>(
  rows: Row[],
  limit: number,
  keyOf: (row: Row) => { at: Date; id: string },
  map: (row: Row) => T,
): Page<T> {
  const shown = rows.slice(0, limit);
  const last = shown.at(-1);
  const key = rows.length > limit && last !== undefined ? keyOf(last) : undefined;
  return { items: shown.map(map), nextCursor: key ? encodeCursor(key.at, key.id) : null };
}

/** An id as Postgres writes it. Its source means the same to Postgres. */
export const UUID_PATTERN = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
/**
 * Ids come from outside: what is no uuid names nothing. Nor does one in upper case. Postgres would find its row, but
 * leases, queue and messages compare ids as text: to them it is another thing.
 */
export const isUuid = (text: string): boolean => UUID_PATTERN.test(text);
