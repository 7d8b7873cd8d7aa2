import {
  ProblemError,
  ProfileSchema,
  validate,
  type CollectiveCurve,
  type ModuleShape,
  type ModuleTime,
  type ProblemDetail,
  type Profile,
} from "@internevo/domain";
import { isProduct, peakOf, workOf } from "./work.ts";

/**
 * Beyond it a time contradicts the peak that is stated beside it; up to it clocks above their nominal rate,
 * or noise, may be the reason.
 */
const MOST_TIMES_PEAK = 2;
/** Caches are faster than memory, but not by this much. */
const MOST_TIMES_BANDWIDTH = 1000;
const MOST_DETAILS = 20;

/** One measured time, with the field that it stands in. */
interface Timed {
  readonly medianSeconds: number;
  readonly p10Seconds?: number;
  readonly p90Seconds?: number;
}

function* percentileFaults(
  field: string,
  { medianSeconds, p10Seconds, p90Seconds }: Timed,
): Generator<ProblemDetail> {
  const remedy = "give percentiles and median of the same samples";
  if (p10Seconds !== undefined && p10Seconds > medianSeconds)
    yield {
      field: `${field}.p10Seconds`,
      value: p10Seconds,
      message: `is more than medianSeconds ${medianSeconds}`,
      remedy,
    };
  if (p90Seconds !== undefined && p90Seconds < medianSeconds)
    yield {
      field: `${field}.p90Seconds`,
      value: p90Seconds,
      message: `is less than medianSeconds ${medianSeconds}`,
      remedy,
    };
}

/** The same thing measured once with one time, and once with another. */
function twiceFault(
  known: Map<string, number>,
  key: string,
  field: string,
  seconds: number,
): ProblemDetail[] {
  const before = known.get(key);
  known.set(key, seconds);
  if (before === undefined || before === seconds) return [];
  return [
    {
      field: `${field}.medianSeconds`,
      value: seconds,
      message: `is another time for what is given above with ${before}`,
      remedy: "give it once",
    },
  ];
}

function bandwidthFault(field: string, bytes: number, seconds: number, { device }: Profile): ProblemDetail[] {
  const times = bytes / seconds / device.memoryBandwidthBytesPerSecond;
  if (times <= MOST_TIMES_BANDWIDTH) return [];
  return [
    {
      field: `${field}.medianSeconds`,
      value: seconds,
      message: `moves ${bytes} bytes ${Math.round(times)} times faster than device.memoryBandwidthBytesPerSecond`,
      remedy: "mend the time, or give the bandwidth that the device has",
    },
  ];
}

/** The most ranks that a group of a placement has. */
function largestGroup({ placement }: CollectiveCurve, { nodes, gpusPerNode }: Profile["cluster"]): number {
  if (placement === "intra-node") return gpusPerNode;
  return placement === "inter-node" ? nodes : nodes * gpusPerNode;
}

function* collectiveFaults(profile: Profile): Generator<ProblemDetail> {
  const known = new Map<string, number>();
  for (const [index, curve] of profile.collectives.entries()) {
    const { op, groupSize, placement } = curve;
    const field = `collectives.${index}`;
    const largest = largestGroup(curve, profile.cluster);
    if (groupSize > largest)
      yield {
        field: `${field}.groupSize`,
        value: groupSize,
        message: `is more than the ${largest} ranks that a group of placement ${placement} has on this cluster`,
        remedy: "give the cluster that was measured, or the placement of the group",
      };
    for (const [at, point] of curve.points.entries()) {
      const pointField = `${field}.points.${at}`;
      yield* percentileFaults(pointField, point);
      yield* twiceFault(
        known,
        `${op} ${groupSize} ${placement} ${point.bytes}`,
        pointField,
        point.medianSeconds,
      );
      yield* bandwidthFault(pointField, point.bytes, point.medianSeconds, profile);
    }
  }
}

/** The achieved rate of a module of products over the stated peak of the device; undefined for others. */
export function peakFraction(
  shape: ModuleShape,
  seconds: number,
  device: Profile["device"],
): number | undefined {
  return isProduct(shape) ? workOf(shape).flops / seconds / peakOf(shape, device) : undefined;
}

function* moduleFaults(profile: Profile): Generator<ProblemDetail> {
  const known = new Map<string, number>();
  for (const [index, module] of (profile.modules as readonly ModuleTime[]).entries()) {
    const { shape, medianSeconds } = module;
    const field = `modules.${index}`;
    yield* percentileFaults(field, module);
    yield* twiceFault(
      known,
      JSON.stringify(Object.entries(shape).sort(([a], [b]) => (a < b ? -1 : 1))),
      field,
      medianSeconds,
    );
    if (shape.module === "attention" && shape.heads % shape.kvHeads !== 0)
      yield {
        field: `${field}.shape.kvHeads`,
        value: shape.kvHeads,
        message: `does not divide heads ${shape.heads}`,
        remedy: "give the heads that were measured",
      };
    const fraction = peakFraction(shape, medianSeconds, profile.device);
    if (fraction === undefined) yield* bandwidthFault(field, workOf(shape).bytes, medianSeconds, profile);
    else if (fraction > MOST_TIMES_PEAK) {
      const peak = shape.precision === "fp32" ? "peakFlopsPerSecondFp32" : "peakFlopsPerSecondBf16";
      yield {
        field: `${field}.medianSeconds`,
        value: medianSeconds,
        message: `makes ${shape.module} ${shape.pass} run at ${Math.round(100 * fraction)}% of device.${peak}`,
        remedy: "mend the time, or give the peak that the device has",
      };
    }
  }
}

/**
 * A profile from outside: of the profile's schema, and without contradictions.
 * @param what names the profile in the error.
 * @throws ProblemError `profile-invalid`, with one detail a fault.
 */
export function parseProfile(value: unknown, what: string): Profile {
  const profile = validate(ProfileSchema, value, "profile-invalid", what);
  const details = [...collectiveFaults(profile), ...moduleFaults(profile)].slice(0, MOST_DETAILS);
  const [first] = details;
  if (first)
    throw new ProblemError(
      "profile-invalid",
      `${what} contradicts itself: ${first.field} ${first.message}`,
      details,
    );
  return profile;
}
