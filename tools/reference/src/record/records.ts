import { createHash } from "node:crypto";

/** One thing that must not change: what it is, and all that was answered about it. */
export interface Entry {
  readonly key: string;
  readonly answer: unknown;
}

/** What is kept of an entry: the digest decides, the summary lets a person see what changed. */
export interface Kept {
  readonly digest: string;
  readonly summary: unknown;
}

export type Section = Readonly<Record<string, Kept>>;
export type Records = Readonly<Record<string, Section>>;

export interface Difference {
  readonly section: string;
  readonly key: string;
  /** Undefined: only the other record has the entry. */
  readonly before: unknown;
  readonly after: unknown;
}

/**
 * JSON with the fields of every object in order of name, so that the order in which code writes them does not
 * count.
 */
function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical);
  if (typeof value !== "object" || value === null) return value;
  const sorted = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(sorted.map(([name, inner]) => [name, canonical(inner)]));
}

export const digestOf = (answer: unknown): string =>
  createHash("sha256")
    .update(JSON.stringify(canonical(answer)) ?? "undefined")
    .digest("hex");

/** @param summaryOf what a person wants to see of an answer; the whole answer when left out. */
export function keep(
  entries: Iterable<Entry>,
  summaryOf: (answer: never) => unknown = (answer) => answer,
): Section {
  const kept: Record<string, Kept> = {};
  for (const { key, answer } of entries) {
    if (key in kept) throw new Error(`two entries are called ${key}`);
    kept[key] = { digest: digestOf(answer), summary: summaryOf(answer as never) };
  }
  return kept;
}

/**
 * Entries whose digests differ, and those that only one record has. Only sections that both have are
 * compared.
 */
export function differences(before: Records, after: Records): Difference[] {
  return Object.keys(before)
    .filter((section) => section in after)
    .flatMap((section) => {
      const [old, now] = [before[section] ?? {}, after[section] ?? {}];
      const keys = [...new Set([...Object.keys(old), ...Object.keys(now)])].sort();
      return keys.flatMap((key) => {
        if (old[key]?.digest === now[key]?.digest) return [];
        return [{ section, key, before: old[key]?.summary, after: now[key]?.summary }];
      });
    });
}
