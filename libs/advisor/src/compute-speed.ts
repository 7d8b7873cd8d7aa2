import type { Profile, SliceParts } from "@internevo/domain";

/** Parts of a slice that the device computes, a layer's times the layers, and the others. */
function total(parts: SliceParts, layers: number): number {
  const { forward, backward, embedding, embeddingCommunication, head, headCommunication, ...ofLayer } = parts;
  const sum = (list: readonly number[]): number => list.reduce((all, one) => all + one, 0);
  return (
    layers * sum([...forward, ...backward, ...Object.values(ofLayer)]) +
    sum([embedding, embeddingCommunication, head, headCommunication])
  );
}

function fasterParts(parts: SliceParts, factor: number): SliceParts {
  return {
    ...parts,
    forward: parts.forward.map((seconds) => seconds / factor),
    backward: parts.backward.map((seconds) => seconds / factor),
    forwardAttention: parts.forwardAttention / factor,
    backwardAttention: parts.backwardAttention / factor,
    embedding: parts.embedding / factor,
    head: parts.head / factor,
  };
}

/** The three times of a measurement, all as many times as long. */
function scaled<Timed extends { medianSeconds: number; p10Seconds?: number; p90Seconds?: number }>(
  time: Timed,
  times: number,
): Timed {
  const { p10Seconds, p90Seconds } = time;
  return {
    ...time,
    medianSeconds: time.medianSeconds * times,
    ...(p10Seconds === undefined ? {} : { p10Seconds: p10Seconds * times }),
    ...(p90Seconds === undefined ? {} : { p90Seconds: p90Seconds * times }),
  };
}

/**
 * A profile whose devices compute `factor` times as fast, products and memory traffic alike: every module takes
 * that part of its time, and the peak figures grow with it. Links stay as they are, and so do copies to the
 * host.
 */
export function withComputeSpeed(profile: Profile, factor: number): Profile {
  const { device, modules, overlaps, slices } = profile;
  return {
    ...profile,
    name: `${profile.name} (compute x ${factor})`,
    device: {
      ...device,
      peakFlopsPerSecondFp32: device.peakFlopsPerSecondFp32 * factor,
      peakFlopsPerSecondBf16: device.peakFlopsPerSecondBf16 * factor,
      memoryBandwidthBytesPerSecond: device.memoryBandwidthBytesPerSecond * factor,
    },
    modules: modules.map((module) => scaled(module, 1 / factor)),
    overlaps: overlaps.map(({ computeSeconds, ...overlap }) => ({
      ...overlap,
      ...(computeSeconds === undefined ? {} : { computeSeconds: computeSeconds / factor }),
    })),
    ...(slices === undefined
      ? {}
      : {
          slices: slices.map((slice) => {
            const parts = fasterParts(slice.parts, factor);
            const times = total(parts, slice.layers) / total(slice.parts, slice.layers);
            return { ...scaled(slice, times), parts };
          }),
        }),
  };
}
