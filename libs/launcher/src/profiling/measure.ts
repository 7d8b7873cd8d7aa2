import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { measurementCount, noisyMeasurements, type Measurements } from "@internevo/cost-model";
import type { ProbeEvent } from "@internevo/contracts";
import {
  formatBytes,
  formatCounted,
  ProfileSchema,
  schedulerOf,
  validate,
  type Cluster,
  type Failure,
  type HostUse,
  type Profile,
} from "@internevo/domain";
import {
  assembleProfile,
  clusterRankCount,
  completedProfile,
  hostsOfProbe,
  mergeProfiles,
  probeConfig,
  qualityOf,
  SLICE_ROUNDS,
  type NoiseLimits,
  type ProbeEffort,
} from "@internevo/profiles";
import type { OnQueue } from "../launch-options.ts";
import { launcherOf, launchRanks, launchTarget } from "../launchers.ts";
import type { Probe, Trainer } from "../programs.ts";
import { measureRuntime } from "./runtime.ts";
import { measureSlices } from "./slices.ts";

export interface MeasureProfileOptions {
  readonly probe: Probe;
  readonly trainer: Trainer;
  readonly cluster: Cluster;
  /** Where the hosts of the installation's clusters are described; only needed for `launcher: ssh`. */
  readonly clustersFile?: string | undefined;
  readonly needed: Measurements;
  readonly threadsPerRank: number;
  readonly effort: ProbeEffort;
  readonly limits: NoiseLimits;
  readonly runDirectory: string;
  /** Stops the probe at once: what it has measured so far is thrown away. */
  readonly signal: AbortSignal;
  /** Leaves the probe to itself where it can be found again (a cluster with a scheduler). */
  readonly detachSignal?: AbortSignal;
  /** See {@link LaunchOptions.confirm}. */
  readonly confirm?: () => Promise<void>;
  /** See {@link LaunchOptions.onQueue}. */
  readonly onQueue?: OnQueue;
  readonly timeoutSeconds: number;
  readonly onProgress: (done: number, total: number, message: string) => void;
  readonly onLog?: (line: string) => void;
}

export type MeasureProfileOutcome =
  | { readonly status: "measured"; readonly profile: Profile }
  | { readonly status: "stopped" }
  | { readonly status: "failed"; readonly failure: Failure };

/** The probe's identity: a profile that another build measured is not fresh. */
export async function programDigest(program: { readonly path: string }): Promise<string> {
  return createHash("sha256")
    .update(await readFile(program.path))
    .digest("hex")
    .slice(0, 16);
}

/** Noisy points are measured again at most so often, where the budget lasts. */
const MOST_AGAIN = 3;

type Interrupted = Exclude<MeasureProfileOutcome, { readonly status: "measured" }>;
/** One pass over some points: the profile of these alone, marked. */
interface Pass {
  readonly status: "measured";
  readonly profile: Profile;
  readonly hosts: readonly HostUse[];
  readonly disturbances: readonly string[];
}

/** At most so many measurements, those that were measured again least often first. */
function fewest(all: Measurements, most: number, timesOf: (one: object) => number): Measurements {
  const list = [...all.modules, ...all.collectives, ...all.overlaps, ...all.slices]
    .sort((a, b) => timesOf(a) - timesOf(b))
    .slice(0, most);
  const chosen = new Set<object>(list);
  const of = <T extends object>(some: readonly T[]): T[] => some.filter((one) => chosen.has(one));
  return {
    modules: of(all.modules),
    collectives: of(all.collectives),
    overlaps: of(all.overlaps),
    slices: of(all.slices),
  };
}

/**
 * Where, beside the probe's launch, the one that measures the trainer's own memory has its record, if
 * launches outlive their supervisor.
 */
export const runtimeDirectory = (runDirectory: string): string => join(runDirectory, "runtime");

/**
 * How often something is run to measure these points: the trainer runs each of its slices several times. It
 * is the total of the progress.
 */
export const measurementRuns = (wanted: Measurements): number =>
  measurementCount({ ...wanted, slices: [] }) + SLICE_ROUNDS * wanted.slices.length;

/**
 * Measures a cluster with the probe: the collectives (VPro), the modules (UPro) and their slow-down by each
 * other (OPro) that the planner asked for, and slices with the trainer. Points that come out noisy are
 * measured again within a budget; what stays noisy is marked. The caller holds the cluster: ranks of somebody
 * else would spoil the figures.
 */
export async function measureProfile(options: MeasureProfileOptions): Promise<MeasureProfileOutcome> {
  const { probe, cluster, needed, limits } = options;
  const digest = await programDigest(probe);
  const ranks = clusterRankCount(cluster);
  const measuredAt = new Date();
  let done = 0;
  let total = measurementRuns(needed);
  const place = {
    ranks,
    threadsPerRank: options.threadsPerRank,
    ...(await launchTarget(cluster, options.clustersFile)),
    runDirectory: options.runDirectory,
    killSignal: options.signal,
    ...(options.detachSignal ? { detachSignal: options.detachSignal } : {}),
    ...(options.confirm ? { confirm: options.confirm } : {}),
    ...(options.onQueue ? { onQueue: options.onQueue } : {}),
    ...(options.onLog ? { onLog: options.onLog } : {}),
  };
  const runtime = await measureRuntime({
    ...place,
    trainer: options.trainer,
    cluster,
    ...(schedulerOf(cluster) === null ? {} : { runDirectory: runtimeDirectory(options.runDirectory) }),
  });
  if (runtime.status !== "measured") return runtime;

  const once = async (wanted: Measurements, suffix: string): Promise<Pass | Interrupted> => {
    const say = (message: string): void => options.onProgress((done += 1), total, `${message}${suffix}`);
    const events: ProbeEvent[] = [];
    const probed = measurementCount({ ...wanted, slices: [] });
    let said = 0;
    const outcome = await launchRanks({
      program: probe,
      config: probeConfig({ ...options, needed: wanted }),
      ...place,
      timeoutSeconds: options.timeoutSeconds,
      onEvent: (event) => {
        events.push(event);
        if (event.event === "collective" || event.event === "module" || event.event === "overlap") said += 1;
        if (event.event === "collective")
          say(`${event.op} of ${formatBytes(event.bytes)} on ${formatCounted(event.groupSize, "rank")}`);
        if (event.event === "module") say(`${event.shape.module}, ${event.shape.pass}`);
        if (event.event === "overlap") say(`${event.shape.module} beside ${event.op}`);
      },
    });
    if (outcome.status === "stopped") return { status: "stopped" };
    if (outcome.status === "failed") return { status: "failed", failure: outcome.failure };
    if (said !== probed)
      return {
        status: "failed",
        failure: { code: "internal", message: `the probe measured ${said} of ${probed} points` },
      };
    const command = `${launcherOf(cluster).startWords(ranks)} internevo-probe --config ${options.runDirectory}/config.json`;
    const hosts = hostsOfProbe(events);
    const composed = assembleProfile({
      events,
      cluster,
      digest,
      threadsPerRank: options.threadsPerRank,
      command,
      measuredAt,
      seconds: outcome.seconds,
      runtimeBytes: runtime.bytes,
      overlapPlacements: wanted.overlaps.map(({ collective }) => collective.placement),
    });
    const sliced = await measureSlices({
      ...place,
      trainer: options.trainer,
      cluster,
      slices: wanted.slices,
      device: composed.device,
      secondsPerSlice: options.effort.maximumSecondsPerPoint,
      mostOthersPercent: limits.mostOthersPercent,
      onSlice: ({ microBatchSize, sequenceParallel }) =>
        say(
          `a micro-batch of ${formatCounted(microBatchSize, "sequence")} in the trainer, ${formatCounted(sequenceParallel, "rank")} a sequence`,
        ),
    });
    if (sliced.status !== "measured") return sliced;
    const completed = completedProfile({
      composed,
      hosts,
      slices: sliced.slices,
      notes: sliced.notes,
      limits,
    });
    return { status: "measured", hosts, ...completed };
  };

  const begin = performance.now();
  const perPoint = (points: number): number => (performance.now() - begin) / 1000 / Math.max(1, points);
  const first = await once(needed, "");
  if (first.status !== "measured") return first;
  const secondsPerPoint = perPoint(measurementCount(needed));
  let profile = first.profile;
  let last = first;
  let measuredAgain = 0;
  const times = new Map<object, number>();
  const timesOf = (one: object): number => times.get(one) ?? 0;
  for (const deadline = performance.now() + 1000 * limits.againSeconds; ;) {
    const room = Math.floor((deadline - performance.now()) / 1000 / secondsPerPoint);
    const noisy = noisyMeasurements(profile, needed);
    const open = <T extends object>(some: readonly T[]): T[] =>
      some.filter((one) => timesOf(one) < MOST_AGAIN);
    const again = fewest(
      {
        modules: open(noisy.modules),
        collectives: open(noisy.collectives),
        overlaps: open(noisy.overlaps),
        slices: open(noisy.slices),
      },
      room,
      timesOf,
    );
    const count = measurementCount(again);
    if (room < 1 || count === 0) break;
    for (const one of [...again.modules, ...again.collectives, ...again.overlaps, ...again.slices])
      times.set(one, timesOf(one) + 1);
    // Counted anew: how many are noisy nobody knows before, and a total that grows says nothing.
    [done, total] = [0, measurementRuns(again)];
    const pass = await once(again, ", again: it was noisy");
    if (pass.status !== "measured") return pass;
    last = pass;
    measuredAgain += count;
    const merged = mergeProfiles(profile, pass.profile);
    profile = {
      ...merged,
      device: bestDevice(profile.device, pass.profile.device),
      provenance: profile.provenance,
    };
  }
  const quality = qualityOf(profile, limits, {
    measuredAgain,
    secondsPerPoint: perPoint(measurementCount(needed) + measuredAgain),
    hosts: [...last.hosts],
    disturbances: [...last.disturbances, ...first.disturbances],
  });
  return {
    status: "measured",
    profile: validate(ProfileSchema, { ...profile, quality }, "profile-invalid", "the measured profile"),
  };
}

/** Of two measurements of one device the better figures: other work only ever takes from them. */
const bestDevice = (a: Profile["device"], b: Profile["device"]): Profile["device"] => ({
  ...a,
  peakFlopsPerSecondFp32: Math.max(a.peakFlopsPerSecondFp32, b.peakFlopsPerSecondFp32),
  peakFlopsPerSecondBf16: Math.max(a.peakFlopsPerSecondBf16, b.peakFlopsPerSecondBf16),
  memoryBandwidthBytesPerSecond: Math.max(a.memoryBandwidthBytesPerSecond, b.memoryBandwidthBytesPerSecond),
});
