import { ProblemError } from "@internevo/domain";
import { Type, type Static } from "typebox";

/** What a testbed is built as. Two with equal settings are equal. */
export const SettingsSchema = Type.Object(
  {
    nodes: Type.Integer({ minimum: 1, maximum: 64 }),
    ranksPerNode: Type.Integer({ minimum: 1, maximum: 256 }),
    bandwidthBitsPerSecond: Type.Integer({ minimum: 1_000_000, maximum: 100_000_000_000 }),
    latencySeconds: Type.Number({ minimum: 0, maximum: 1 }),
  },
  { additionalProperties: false },
);
export type Settings = Static<typeof SettingsSchema>;

export const DEFAULT_SETTINGS: Settings = {
  nodes: 2,
  ranksPerNode: 2,
  bandwidthBitsPerSecond: 1e9,
  latencySeconds: 0,
};
export const DEFAULT_NAME = "testbed";

const refuse = (field: string, value: unknown, message: string, remedy: string): never => {
  throw new ProblemError("bad-request", `${field}: ${String(value)} ${message}: ${remedy}`, [
    { field, value, message, remedy },
  ]);
};

/** Interfaces and hosts are named after the testbed. */
export function checkedName(value: string): string {
  return /^[a-z][a-z0-9-]{0,30}$/.test(value)
    ? value
    : refuse(
        "--name",
        value,
        "is no name of a testbed",
        "use up to 31 small letters, digits and hyphens, beginning with a letter",
      );
}

export function wholeNumber(field: string, value: string, most: number): number {
  const number = Number(value);
  return /^\d+$/.test(value) && number >= 1 && number <= most
    ? number
    : refuse(field, value, "is out of range", `give a whole number from 1 to ${most}`);
}

const RATE = { bit: 1, kbit: 1e3, mbit: 1e6, gbit: 1e9 } as const;

/** `250mbit`, `1gbit`: bits a second, each way. */
export function bandwidthOf(value: string): number {
  const found = /^(\d+(?:\.\d+)?)(k|m|g)?bit$/.exec(value.toLowerCase());
  const bits = found
    ? Math.round(Number(found[1]) * RATE[`${(found[2] ?? "") as "" | "k" | "m" | "g"}bit`])
    : Number.NaN;
  return bits >= 1e6 && bits <= 1e11
    ? bits
    : refuse(
        "--bandwidth",
        value,
        "is no bandwidth that links can have",
        "give 1mbit to 100gbit, for example 250mbit or 1gbit",
      );
}

const TIME = { us: 1e-6, ms: 1e-3, s: 1 } as const;

/** `100us`, `2ms`: seconds from one node to another, one way. */
export function latencyOf(value: string): number {
  const found = /^(\d+(?:\.\d+)?)(us|ms|s)$/.exec(value.toLowerCase());
  const given = found ? Number(found[1]) * TIME[found[2] as keyof typeof TIME] : Number.NaN;
  const seconds = value === "0" ? 0 : given;
  return seconds >= 0 && seconds <= 1
    ? seconds
    : refuse(
        "--latency",
        value,
        "is no latency that links can have",
        "give 0 to 1s, for example 100us or 2ms",
      );
}

export const formatBandwidth = (bits: number): string =>
  bits >= 1e9 ? `${bits / 1e9} Gbit/s` : `${bits / 1e6} Mbit/s`;
export function formatLatency(seconds: number): string {
  if (seconds === 0) return "none added";
  return seconds >= 1e-3 ? `${seconds * 1e3} ms` : `${Math.round(seconds * 1e9) / 1e3} µs`;
}
