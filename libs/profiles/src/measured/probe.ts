import type { Measurements } from "@internevo/cost-model";
import { NATIVE_PROTOCOL, type ProbeConfig, type ProbeEvent } from "@internevo/contracts";
import {
  disturbancesOf,
  ProfileSchema,
  usesGpus,
  validate,
  type Cluster,
  type HostUse,
  type Placement,
  type Profile,
} from "@internevo/domain";
import { collectiveCurves, copyRates } from "./measurements.ts";
import { marked, type NoiseLimits } from "./quality.ts";
import type { SliceOfRounds } from "./slices.ts";

/** How long the probe may take for one point, and how even its samples should be. */
export interface ProbeEffort {
  readonly minimumSamples: number;
  readonly maximumSecondsPerPoint: number;
  readonly targetRelativeSpread: number;
}

/** The same, and how often the trainer runs each of its slices. */
export interface MeasuringEffort extends ProbeEffort {
  readonly sliceRounds: number;
}

/**
 * Names, among a profile's versions, of the probe's identity and of the threads that a rank computed with.
 */
export const PROBE_VERSION = "internevo-probe";
export const THREADS_VERSION = "threads-per-rank";

/** Ranks of a cluster: one a device. */
export const clusterRankCount = (cluster: Pick<Cluster, "nodes" | "gpusPerNode">): number =>
  cluster.nodes * cluster.gpusPerNode;

export function probeConfig(
  options: Readonly<{
    needed: Measurements;
    threadsPerRank: number;
    effort: ProbeEffort;
    cluster: Pick<Cluster, "device">;
    /** Whether the device is measured too; default: it is. */
    device?: boolean;
  }>,
): ProbeConfig {
  const { needed, threadsPerRank, effort, cluster, device = true } = options;
  return {
    protocol: NATIVE_PROTOCOL,
    threadsPerRank,
    minimumSamples: effort.minimumSamples,
    maximumSeconds: effort.maximumSecondsPerPoint,
    targetRelativeSpread: effort.targetRelativeSpread,
    collectives: needed.collectives.map(({ op, bytes, groups, placement }) => ({
      op,
      bytes,
      groups,
      placement,
    })),
    modules: [...needed.modules],
    overlaps: needed.overlaps.map(({ module, collective: { op, bytes, groups, placement } }) => ({
      module,
      collective: { op, bytes, groups, placement },
    })),
    device,
    ...(usesGpus(cluster) ? { deviceKind: "cuda" as const } : {}),
  };
}

type EventNamed<Name extends ProbeEvent["event"]> = Extract<ProbeEvent, { event: Name }>;
const named = <Name extends ProbeEvent["event"]>(
  events: readonly ProbeEvent[],
  name: Name,
): EventNamed<Name>[] => events.filter((event): event is EventNamed<Name> => event.event === name);

/**
 * The best rate that any product of a precision reached: on a busy machine the probe's own large product may
 * have been disturbed more than a module.
 */
function peakOf(events: readonly ProbeEvent[], precision: "fp32" | "bf16", largeProduct: number): number {
  const rates = named(events, "module").flatMap(({ shape, flops, p10Seconds }) =>
    shape.module === "linear" && shape.precision === precision ? [flops / p10Seconds] : [],
  );
  return Math.max(largeProduct, ...rates);
}

/**
 * Readable, and apart from others of the day: `this-machine 2026-01-31 18:05 UTC`. A name is the same for all
 * readers, so its zone is fixed.
 */
export const profileName = (clusterName: string, measuredAt: Date): string =>
  `${clusterName} ${measuredAt.toISOString().slice(0, 16).replace("T", " ")} UTC`;

/** What a profile says of its cluster, and how that is named. */
export type ProfiledCluster = Pick<
  Cluster,
  "name" | "nodes" | "gpusPerNode" | "memoryPerGpuBytes" | "device"
>;

/** How modules and collectives slow each other down; the probe answers in the order in which it was asked. */
export const overlapsOf = (
  events: readonly ProbeEvent[],
  placements: readonly Placement[],
): Profile["overlaps"] =>
  named(events, "overlap").map(
    ({ shape, op, bytes, groupSize, slowdown, aloneComputeSeconds, aloneCommunicationSeconds }, index) => {
      const placement = placements[index];
      return {
        shape,
        op,
        bytes,
        groupSize,
        ...(placement === undefined ? {} : { placement }),
        slowdown,
        computeSeconds: aloneComputeSeconds,
        communicationSeconds: aloneCommunicationSeconds,
      };
    },
  );

/** What the probe said, as a profile. */
export function assembleProfile(options: {
  events: readonly ProbeEvent[];
  cluster: ProfiledCluster;
  digest: string;
  threadsPerRank: number;
  command: string;
  measuredAt: Date;
  seconds: number;
  runtimeBytes: number;
  overlapPlacements: readonly Placement[];
}): Profile {
  const {
    events,
    runtimeBytes,
    overlapPlacements,
    cluster,
    digest,
    threadsPerRank,
    command,
    measuredAt,
    seconds,
  } = options;
  const [device] = named(events, "device");
  if (!device) throw new Error("the probe ended without describing the device");
  const profile: Profile = {
    schemaVersion: 1,
    name: profileName(cluster.name, measuredAt),
    cluster: {
      nodes: cluster.nodes,
      gpusPerNode: cluster.gpusPerNode,
      memoryPerGpuBytes: cluster.memoryPerGpuBytes,
    },
    device: {
      name: device.name,
      ...(usesGpus(cluster) ? { kind: "gpu" as const } : {}),
      peakFlopsPerSecondFp32: peakOf(events, "fp32", device.peakFlopsPerSecondFp32),
      peakFlopsPerSecondBf16: peakOf(events, "bf16", device.peakFlopsPerSecondBf16),
      memoryBandwidthBytesPerSecond: device.memoryBandwidthBytesPerSecond,
      ...copyRates(device),
      runtimeBytes,
    },
    executor: { forwardOverlap: "none", backwardOverlap: "none" },
    collectives: collectiveCurves(named(events, "collective")),
    modules: named(events, "module").map(({ shape, medianSeconds, p10Seconds, p90Seconds, samples }) => ({
      shape,
      medianSeconds,
      p10Seconds,
      p90Seconds,
      samples,
    })),
    overlaps: overlapsOf(events, overlapPlacements),
    provenance: {
      source: "measured by internevo-probe",
      measuredAt: measuredAt.toISOString(),
      versions: {
        [PROBE_VERSION]: digest,
        [THREADS_VERSION]: String(threadsPerRank),
        compiler: device.compiler,
        ...device.libraries,
      },
      command,
      notes: [
        `${device.cores} cores, ${device.isa}, on ${device.hosts.join(", ")}`,
        `took ${seconds.toFixed(1)} s`,
      ],
    },
  };
  return validate(ProfileSchema, profile, "profile-invalid", "the measured profile");
}

/** What the hosts did while the probe measured. */
export const hostsOfProbe = (events: readonly ProbeEvent[]): HostUse[] =>
  named(events, "hosts").flatMap((event) => event.hosts);

/**
 * The probe's profile with the slices that the trainer ran, every point marked that is noisy or was measured
 * beside other work.
 */
export function completedProfile(options: {
  readonly composed: Profile;
  readonly hosts: readonly HostUse[];
  readonly slices: readonly SliceOfRounds[];
  readonly notes: readonly string[];
  readonly limits: Pick<NoiseLimits, "mostSpreadPercent" | "mostOthersPercent">;
}): { readonly profile: Profile; readonly disturbances: string[] } {
  const { composed, hosts, slices, notes, limits } = options;
  const besideProbe = disturbancesOf(hosts, limits.mostOthersPercent);
  const disturbed = besideProbe.length > 0;
  return {
    profile: {
      ...composed,
      modules: marked(composed.modules, disturbed, limits),
      collectives: composed.collectives.map((curve) => ({
        ...curve,
        points: marked(curve.points, disturbed, limits),
      })),
      overlaps: marked(composed.overlaps, disturbed, limits),
      slices: slices.flatMap(({ disturbances, ...slice }) =>
        marked([slice], disturbances.length > 0, limits),
      ),
      provenance: { ...composed.provenance, notes: [...composed.provenance.notes, ...notes] },
    },
    disturbances: [...besideProbe, ...slices.flatMap(({ disturbances }) => disturbances)],
  };
}
