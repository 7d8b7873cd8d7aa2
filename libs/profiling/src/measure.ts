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
import {
  launcherOf,
  launchRanks,
  launchTarget,
  type OnQueue,
  type Probe,
  type Trainer,
} from "@internevo/launcher";
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

type Place = Awaited<ReturnType<typeof placeOf>>;

/** Where and how ranks of a measurement run. */
const placeOf = async (options: MeasureProfileOptions) => ({
  ranks: clusterRankCount(options.cluster),
  threadsPerRank: options.threadsPerRank,
  ...(await launchTarget(options.cluster, options.clustersFile)),
  runDirectory: options.runDirectory,
  killSignal: options.signal,
  ...(options.detachSignal ? { detachSignal: options.detachSignal } : {}),
  ...(options.confirm ? { confirm: options.confirm } : {}),
  ...(options.onQueue ? { onQueue: options.onQueue } : {}),
  ...(options.onLog ? { onLog: options.onLog } : {}),
});

/** The measurement of one cluster: one pass over all points, and further ones over the noisy ones. */
class Measuring {
  readonly #options: MeasureProfileOptions;
  readonly #place: Place;
  readonly #digest: string;
  readonly #runtimeBytes: number;
  readonly #measuredAt: Date;
  readonly #begin = performance.now();
  /** How often a point was measured again. */
  readonly #times = new Map<object, number>();
  #done = 0;
  #total: number;

  constructor(
    options: MeasureProfileOptions,
    known: {
      readonly place: Place;
      readonly digest: string;
      readonly runtimeBytes: number;
      readonly measuredAt: Date;
    },
  ) {
    this.#options = options;
    this.#place = known.place;
    this.#digest = known.digest;
    this.#runtimeBytes = known.runtimeBytes;
    this.#measuredAt = known.measuredAt;
    this.#total = measurementRuns(options.needed);
  }

  async profile(): Promise<MeasureProfileOutcome> {
    const { needed, limits } = this.#options;
    const first = await this.#pass(needed, "");
    if (first.status !== "measured") return first;
    const secondsPerPoint = this.#secondsPerPoint();
    let profile = first.profile;
    let last = first;
    let measuredAgain = 0;
    for (const deadline = performance.now() + 1000 * limits.againSeconds; ;) {
      const room = Math.floor((deadline - performance.now()) / 1000 / secondsPerPoint);
      const again = this.#noisy(profile, room);
      const count = measurementCount(again);
      if (room < 1 || count === 0) break;
      for (const one of [...again.modules, ...again.collectives, ...again.overlaps, ...again.slices])
        this.#times.set(one, this.#timesOf(one) + 1);
      // Counted anew: how many are noisy nobody knows before, and a total that grows says nothing.
      [this.#done, this.#total] = [0, measurementRuns(again)];
      const pass = await this.#pass(again, ", again: it was noisy");
      if (pass.status !== "measured") return pass;
      last = pass;
      measuredAgain += count;
      profile = { ...mergeProfiles(profile, pass.profile), provenance: profile.provenance };
    }
    const quality = qualityOf(profile, limits, {
      measuredAgain,
      secondsPerPoint: this.#secondsPerPoint(),
      hosts: [...last.hosts],
      disturbances: [...last.disturbances, ...first.disturbances],
    });
    return {
      status: "measured",
      profile: validate(ProfileSchema, { ...profile, quality }, "profile-invalid", "the measured profile"),
    };
  }

  /** So far: what is measured again comes on top of the points that are needed. */
  #secondsPerPoint(): number {
    const points = measurementCount(this.#options.needed);
    return (performance.now() - this.#begin) / 1000 / Math.max(1, points);
  }

  #timesOf(one: object): number {
    return this.#times.get(one) ?? 0;
  }

  /** Of the noisy points those that have room, and were not measured too often. */
  #noisy(profile: Profile, room: number): Measurements {
    const noisy = noisyMeasurements(profile, this.#options.needed);
    const open = <T extends object>(some: readonly T[]): T[] =>
      some.filter((one) => this.#timesOf(one) < MOST_AGAIN);
    return fewest(
      {
        modules: open(noisy.modules),
        collectives: open(noisy.collectives),
        overlaps: open(noisy.overlaps),
        slices: open(noisy.slices),
      },
      room,
      (one) => this.#timesOf(one),
    );
  }

  #say(message: string): void {
    this.#done += 1;
    this.#options.onProgress(this.#done, this.#total, message);
  }

  async #pass(wanted: Measurements, suffix: string): Promise<Pass | Interrupted> {
    const { cluster, limits, runDirectory, threadsPerRank } = this.#options;
    const probed = await this.#probe(wanted, suffix);
    if (probed.status !== "probed") return probed;
    const { events, seconds } = probed;
    const start = launcherOf(cluster).startWords(this.#place.ranks);
    const composed = assembleProfile({
      events,
      cluster,
      digest: this.#digest,
      threadsPerRank,
      command: `${start} internevo-probe --config ${runDirectory}/config.json`,
      measuredAt: this.#measuredAt,
      seconds,
      runtimeBytes: this.#runtimeBytes,
      overlapPlacements: wanted.overlaps.map(({ collective }) => collective.placement),
    });
    const sliced = await measureSlices({
      ...this.#place,
      trainer: this.#options.trainer,
      cluster,
      slices: wanted.slices,
      device: composed.device,
      secondsPerSlice: this.#options.effort.maximumSecondsPerPoint,
      mostOthersPercent: limits.mostOthersPercent,
      onSlice: ({ microBatchSize, sequenceParallel }) =>
        this.#say(
          `a micro-batch of ${formatCounted(microBatchSize, "sequence")} in the trainer, ${formatCounted(sequenceParallel, "rank")} a sequence${suffix}`,
        ),
    });
    if (sliced.status !== "measured") return sliced;
    const hosts = hostsOfProbe(events);
    const { slices, notes } = sliced;
    return { status: "measured", hosts, ...completedProfile({ composed, hosts, slices, notes, limits }) };
  }

  /** Runs the probe. @returns what it said, and how long it took. */
  async #probe(
    wanted: Measurements,
    suffix: string,
  ): Promise<
    | { readonly status: "probed"; readonly events: readonly ProbeEvent[]; readonly seconds: number }
    | Interrupted
  > {
    const events: ProbeEvent[] = [];
    const points = measurementCount({ ...wanted, slices: [] });
    let said = 0;
    const outcome = await launchRanks({
      program: this.#options.probe,
      config: probeConfig({ ...this.#options, needed: wanted }),
      ...this.#place,
      timeoutSeconds: this.#options.timeoutSeconds,
      onEvent: (event) => {
        events.push(event);
        const words = pointWords(event);
        if (words === undefined) return;
        said += 1;
        this.#say(`${words}${suffix}`);
      },
    });
    if (outcome.status === "stopped") return { status: "stopped" };
    if (outcome.status === "failed") return { status: "failed", failure: outcome.failure };
    if (said !== points)
      return {
        status: "failed",
        failure: { code: "internal", message: `the probe measured ${said} of ${points} points` },
      };
    return { status: "probed", events, seconds: outcome.seconds };
  }
}

/** A point that the probe measured; undefined for its other events. */
function pointWords(event: ProbeEvent): string | undefined {
  if (event.event === "collective")
    return `${event.op} of ${formatBytes(event.bytes)} on ${formatCounted(event.groupSize, "rank")}`;
  if (event.event === "module") return `${event.shape.module}, ${event.shape.pass}`;
  return event.event === "overlap" ? `${event.shape.module} beside ${event.op}` : undefined;
}

/**
 * Measures a cluster with the probe: the collectives (VPro), the modules (UPro) and their slow-down by each
 * other (OPro) that the planner asked for, and slices with the trainer. Points that come out noisy are
 * measured again within a budget; what stays noisy is marked. The caller holds the cluster: ranks of somebody
 * else would spoil the figures.
 */
export async function measureProfile(options: MeasureProfileOptions): Promise<MeasureProfileOutcome> {
  const { cluster } = options;
  const digest = await programDigest(options.probe);
  const measuredAt = new Date();
  const place = await placeOf(options);
  const runtime = await measureRuntime({
    ...place,
    trainer: options.trainer,
    cluster,
    ...(schedulerOf(cluster) === null ? {} : { runDirectory: runtimeDirectory(options.runDirectory) }),
  });
  if (runtime.status !== "measured") return runtime;
  return new Measuring(options, { place, digest, runtimeBytes: runtime.bytes, measuredAt }).profile();
}
