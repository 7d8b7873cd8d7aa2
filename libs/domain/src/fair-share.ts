import { Type, type Static } from "typebox";

/** The weight of a project where nobody gave another. */
export const DEFAULT_WEIGHT = 1;

export const WEIGHT_BOUNDS = { minimum: 0.01, maximum: 10_000 };
export const WeightSchema = Type.Number({
  ...WEIGHT_BOUNDS,
  description: `its share of GPU time beside other projects that wait: twice the weight, twice the time; default ${DEFAULT_WEIGHT}`,
});

/** `1`, `0.25`, `1,000`. */
export const formatWeight = (weight: number): string =>
  weight.toLocaleString("en-US", { maximumFractionDigits: 4 });

/** How the installation's queue forgets usage, and how long it lets others go first. */
export const QueueSettingsSchema = Type.Object(
  {
    halfLifeHours: Type.Number({
      minimum: 1,
      maximum: 100_000,
      description: "hours after which GPU time that a project used counts half for its fair share",
    }),
    patienceHours: Type.Number({
      minimum: 1,
      maximum: 100_000,
      description: "who has waited for so many hours goes first, whatever its priority and project",
    }),
    leastRunMinutes: Type.Number({
      minimum: 0,
      maximum: 100_000,
      description: "a preemptible job keeps its hosts for so many minutes before it gives way to another",
    }),
  },
  { additionalProperties: false },
);
export type QueueSettings = Static<typeof QueueSettingsSchema>;

/**
 * A week, so that usage of half a year ago counts nothing; two weeks, the longest that others go first; and ten
 * minutes, so that starting the ranks is a small part of what a job does before it gives way.
 */
export const DEFAULT_QUEUE_SETTINGS: QueueSettings = {
  halfLifeHours: 168,
  patienceHours: 336,
  leastRunMinutes: 10,
};

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
export const minutesBetween = (fromMs: number, toMs: number): number => (toMs - fromMs) / MINUTE_MS;
export const hoursBetween = (fromMs: number, toMs: number): number => (toMs - fromMs) / HOUR_MS;

/** What is left of usage after so many hours. */
const decayed = (gpuHours: number, hours: number, halfLifeHours: number): number =>
  gpuHours * 2 ** (-Math.max(0, hours) / halfLifeHours);

/** GPU-hours as they count at an instant. */
export interface DecayedUsage {
  readonly gpuHours: number;
  /** Milliseconds since 1970. */
  readonly atMs: number;
}
export const NO_USAGE: DecayedUsage = { gpuHours: 0, atMs: 0 };

/** A time in which work held GPUs. */
export interface GpuHold {
  readonly gpus: number;
  readonly beganAtMs: number;
  /** Null: it holds them still. */
  readonly endedAtMs: number | null;
}

/** Usage as it counts at a later instant. */
export const usageAt = (usage: DecayedUsage, atMs: number, halfLifeHours: number): DecayedUsage => ({
  gpuHours: decayed(usage.gpuHours, hoursBetween(usage.atMs, atMs), halfLifeHours),
  atMs,
});

/**
 * Usage with that of a hold, at `atMs`, not before the hold's end: every instant of it has decayed for as long
 * as it is past, the integral of gpus · 2^(−t / half-life).
 */
export function usageWith(
  usage: DecayedUsage,
  { gpus, beganAtMs, endedAtMs }: GpuHold,
  atMs: number,
  halfLifeHours: number,
): DecayedUsage {
  const now = usageAt(usage, atMs, halfLifeHours);
  const left = (instantMs: number) => decayed(1, hoursBetween(instantMs, atMs), halfLifeHours);
  const endMs = Math.min(endedAtMs ?? atMs, atMs);
  if (endMs <= beganAtMs) return now;
  return {
    ...now,
    gpuHours: now.gpuHours + (gpus * halfLifeHours * (left(endMs) - left(beganAtMs))) / Math.LN2,
  };
}
