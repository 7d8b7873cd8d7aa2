import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { measurementCount, noisyMeasurements, type Measurements } from "@internevo/cost-model";
import type { ProbeEvent } from "@internevo/contracts";
import {
  clusterKey,
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
  type NoiseLimits,
  type MeasuringEffort,
} from "@internevo/profiles";
import {
  launcherOf,
  launchRanks,
  launchTarget,
  type OnQueue,
  type Probe,
  type Trainer,
} from "@internevo/launcher";
import { MeasuredSoFar } from "./measured-so-far.ts";
import { measureRuntime } from "./runtime.ts";
import { measureSlices, type MeasureSlicesOptions } from "./slices.ts";

export interface MeasureProfileOptions {
  readonly probe: Probe;
  readonly trainer: Trainer;
  readonly cluster: Cluster;
  /** Where the hosts of the installation's clusters are described; only needed for `launcher: ssh`. */
  readonly clustersFile?: string | undefined;
  readonly needed: Measurements;
  readonly threadsPerRank: number;
  readonly effort: MeasuringEffort;
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
  /**
   * Where measured points are kept, so that an attempt after lost ranks measures only what is missing, and for
   * how long. Absent: every attempt measures everything, as where attempts may get other nodes.
   */
  readonly keep?: {
    readonly path: string;
    readonly freshForSeconds: number;
    /** Told how many points are kept, again with every one. */
    readonly onKept: (count: number) => void;
  };
  /** See {@link LaunchOptions.silenceSeconds}; of the probe. */
  readonly silenceSeconds?: number;
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
export const measurementRuns = (wanted: Measurements, sliceRounds: number): number =>
  measurementCount({ ...wanted, slices: [] }) + sliceRounds * wanted.slices.length;

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

/** What begins where noisy points are measured again, in runs of their own. */
const againWords = (points: number, runs: number): string =>
  `measuring ${formatCounted(points, "noisy point")} again${runs === points ? "" : ` in ${formatCounted(runs, "run")}`}`;

/** The measurement of one cluster: one pass over all points, and further ones over the noisy ones. */
class Measuring {
  readonly #options: MeasureProfileOptions;
  readonly #place: Place;
  readonly #digest: string;
  readonly #runtimeBytes: number;
  readonly #soFar: MeasuredSoFar;
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
      readonly soFar: MeasuredSoFar;
    },
  ) {
    this.#options = options;
    this.#place = known.place;
    this.#digest = known.digest;
    this.#runtimeBytes = known.runtimeBytes;
    this.#soFar = known.soFar;
    this.#total = measurementRuns(options.needed, options.effort.sliceRounds);
  }

  async profile(): Promise<MeasureProfileOutcome> {
    const { limits } = this.#options;
    const first = await this.#first();
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
      [this.#done, this.#total] = [0, measurementRuns(again, this.#options.effort.sliceRounds)];
      this.#options.onProgress(0, this.#total, againWords(count, this.#total));
      const pass = await this.#pass(again, ", again");
      // Lost ranks cost this pass and its time: there is a measurement of every point.
      if (pass.status === "failed" && pass.failure.code === "rank-lost") continue;
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
    return this.#soFar.seconds / Math.max(1, points);
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

  /** The pass over all points, without those that an attempt before this one has measured. */
  async #first(): Promise<Pass | Interrupted> {
    const { needed, onProgress, keep, effort } = this.#options;
    const { sliceRounds } = effort;
    const rounds = needed.slices.reduce(
      (sum, slice) =>
        sum +
        (this.#soFar.hasNoRoom(slice)
          ? sliceRounds
          : Math.min(sliceRounds, this.#soFar.roundsOf(slice).length)),
      0,
    );
    const { slices: _, ...missing } = this.#soFar.missing(needed);
    this.#done = this.#total - sliceRounds * needed.slices.length + rounds;
    this.#done -= measurementCount({ ...missing, slices: [] });
    if (this.#done > 0)
      onProgress(this.#done, this.#total, `goes on with ${formatCounted(this.#done, "run")} of before`);
    keep?.onKept(this.#soFar.count);
    return this.#pass(needed, "", this.#soFar);
  }

  #say(message: string): void {
    this.#done += 1;
    this.#options.onProgress(this.#done, this.#total, message);
  }

  /** @param kept what was measured already, and is not again; what is measured joins it. */
  async #pass(wanted: Measurements, suffix: string, kept?: MeasuredSoFar): Promise<Pass | Interrupted> {
    const { cluster, limits, runDirectory, threadsPerRank } = this.#options;
    const probed = await this.#probe(kept ? kept.missing(wanted) : wanted, suffix, kept);
    if (probed.status !== "probed") return probed;
    const { events, seconds } = probed;
    const start = launcherOf(cluster).startWords(this.#place.ranks);
    const composed = assembleProfile({
      events,
      cluster,
      digest: this.#digest,
      threadsPerRank,
      command: `${start} internevo-probe --config ${runDirectory}/config.json`,
      measuredAt: this.#soFar.measuredAt,
      seconds,
      runtimeBytes: this.#runtimeBytes,
      overlapPlacements:
        kept?.overlapPlacements ?? wanted.overlaps.map(({ collective }) => collective.placement),
    });
    const sliced = await measureSlices({
      ...this.#place,
      trainer: this.#options.trainer,
      cluster,
      slices: wanted.slices,
      device: composed.device,
      secondsPerSlice: this.#options.effort.maximumSecondsPerPoint,
      rounds: this.#options.effort.sliceRounds,
      mostOthersPercent: limits.mostOthersPercent,
      ...(kept ? this.#keptSlices(kept) : {}),
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

  #keptSlices(kept: MeasuredSoFar): Pick<MeasureSlicesOptions, "kept" | "onRound" | "onNoRoom"> {
    const { keep } = this.#options;
    return {
      kept: { roundsOf: (slice) => kept.roundsOf(slice), hasNoRoom: (slice) => kept.hasNoRoom(slice) },
      onRound: (run) => {
        kept.keepRound(run);
        keep?.onKept(kept.count);
      },
      onNoRoom: (slice) => {
        kept.keepNoRoom(slice);
        keep?.onKept(kept.count);
      },
    };
  }

  /** Runs the probe, where it has something to say. @returns what it said, with what is kept, and how long it took. */
  async #probe(
    wanted: Measurements,
    suffix: string,
    kept?: MeasuredSoFar,
  ): Promise<
    | { readonly status: "probed"; readonly events: readonly ProbeEvent[]; readonly seconds: number }
    | Interrupted
  > {
    const events: ProbeEvent[] = [];
    const points = measurementCount({ ...wanted, slices: [] });
    const device = kept?.events.every(({ event }) => event !== "device") ?? true;
    if (kept && points === 0 && !device)
      return { status: "probed", events: kept.events, seconds: kept.seconds };
    let said = 0;
    let overlaps = 0;
    const outcome = await launchRanks({
      program: this.#options.probe,
      config: probeConfig({ ...this.#options, needed: wanted, device }),
      ...this.#place,
      timeoutSeconds: this.#options.timeoutSeconds,
      ...(this.#options.silenceSeconds === undefined ? {} : { silenceSeconds: this.#options.silenceSeconds }),
      onEvent: (event) => {
        events.push(event);
        // The probe answers in the order in which it was asked.
        const placement =
          event.event === "overlap" ? wanted.overlaps[overlaps++]?.collective.placement : undefined;
        kept?.keepEvent(event, placement);
        if (kept) this.#options.keep?.onKept(kept.count);
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
    return { status: "probed", events: kept?.events ?? events, seconds: outcome.seconds };
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
 * measured again within a budget; what stays noisy is marked. Points of an attempt that lost ranks are kept for
 * the next, if the caller says where. The caller holds the cluster: ranks of somebody
 * else would spoil the figures.
 */
export async function measureProfile(options: MeasureProfileOptions): Promise<MeasureProfileOutcome> {
  const { cluster } = options;
  const digest = await programDigest(options.probe);
  const soFar = await MeasuredSoFar.open({
    path: options.keep?.path,
    freshForSeconds: options.keep?.freshForSeconds ?? 0,
    cluster: clusterKey(cluster),
    programs: [digest, await programDigest(options.trainer)],
    threadsPerRank: options.threadsPerRank,
    effort: options.effort,
    onFailure: (error) =>
      options.onLog?.(`measured points cannot be kept for another attempt: ${(error as Error).message}`),
  });
  const place = await placeOf(options);
  let { runtimeBytes } = soFar;
  if (runtimeBytes === undefined) {
    const runtime = await measureRuntime({
      ...place,
      trainer: options.trainer,
      cluster,
      ...(schedulerOf(cluster) === null ? {} : { runDirectory: runtimeDirectory(options.runDirectory) }),
    });
    if (runtime.status !== "measured") return runtime;
    runtimeBytes = runtime.bytes;
    soFar.keepRuntime(runtimeBytes);
    options.keep?.onKept(soFar.count);
  }
  const outcome = await new Measuring(options, { place, digest, runtimeBytes, soFar }).profile();
  if (outcome.status === "measured") await soFar.forget();
  return outcome;
}
