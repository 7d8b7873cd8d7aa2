// Makes libs/cost-model/profiles/a800-128.json from the published measurements: `node
// tools/reference/a800-profile.ts`.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import {
  ProfileSchema,
  validate,
  type Collective,
  type CollectiveCurve,
  type ModuleTime,
  type Profile,
} from "@internevo/domain";

interface Measurements {
  readonly sources: Readonly<Record<string, string>>;
  readonly collectives: Readonly<
    Record<
      Collective,
      {
        readonly bytes: readonly number[];
        readonly microseconds: Readonly<Record<string, readonly number[]>>;
      }
    >
  >;
  readonly linear: readonly (readonly [rows: number, width: number, microseconds: number])[];
  readonly attention: readonly (readonly [
    batch: number,
    sequence: number,
    heads: number,
    forward: number,
    backward: number,
  ])[];
}

const GPUS_PER_NODE = 8;
const HEAD_SIZE = 128;
/** Middle of the range that the paper gives for its slow-down R (1.25 to 1.35). */
const SLOWDOWN = 1.3;

const seconds = (microseconds: number): number => Number((microseconds * 1e-6).toPrecision(8));

function curves(measured: Measurements): CollectiveCurve[] {
  return Object.entries(measured.collectives).flatMap(([op, { bytes, microseconds }]) =>
    Object.entries(microseconds).map(([ranks, times]) => ({
      op: op as Collective,
      groupSize: Number(ranks),
      placement: Number(ranks) <= GPUS_PER_NODE ? ("intra-node" as const) : ("mixed" as const),
      points: bytes.map((size, i) => ({ bytes: size, medianSeconds: seconds(times[i] as number) })),
    })),
  );
}

function modules(measured: Measurements): ModuleTime[] {
  const linear = measured.linear.map(([rows, width, time]) => ({
    shape: {
      module: "linear" as const,
      pass: "forward" as const,
      precision: "bf16" as const,
      rows,
      inputs: width,
      outputs: width,
    },
    medianSeconds: seconds(time),
  }));
  const attention = measured.attention.flatMap(([batch, sequence, heads, forward, backward]) =>
    (
      [
        ["forward", forward],
        ["backward", backward],
      ] as const
    ).map(([pass, time]) => ({
      shape: {
        module: "attention" as const,
        pass,
        precision: "bf16" as const,
        batch,
        sequence,
        heads,
        kvHeads: heads,
        headSize: HEAD_SIZE,
      },
      medianSeconds: seconds(time),
    })),
  );
  return [...linear, ...attention];
}

/** The shipped profile of 128 A100/A800-80GB from the raw data. */
export function a800Profile(measured: Measurements): Profile {
  return validate(
    ProfileSchema,
    {
      schemaVersion: 1,
      name: "a800-128",
      cluster: { nodes: 16, gpusPerNode: GPUS_PER_NODE, memoryPerGpuBytes: 80e9 },
      device: {
        name: "NVIDIA A100/A800-SXM4-80GB",
        kind: "gpu",
        peakFlopsPerSecondFp32: 19.5e12,
        peakFlopsPerSecondBf16: 312e12,
        memoryBandwidthBytesPerSecond: 2.039e12,
        runtimeBytes: 2 * 2 ** 30,
      },
      executor: {
        forwardOverlap: "inter-layer",
        backwardOverlap: "intra-layer",
        updatedParameters: "within-update",
        tensorActivations: "waited-for",
      },
      collectives: curves(measured),
      modules: modules(measured),
      overlaps: (["all-gather", "reduce-scatter"] as const).map((op) => ({
        op,
        groupSize: GPUS_PER_NODE,
        slowdown: SLOWDOWN,
      })),
      provenance: {
        source: `Measured by the authors of the InternEvo paper and published with their planner: ${Object.values(measured.sources).join("; ")}. Raw figures: tools/reference/data/a800-measurements.json.`,
        measuredAt: null,
        versions: {},
        command: "node tools/reference/a800-profile.ts",
        notes: [
          "The source does not name its hardware; A800-80GB with NVSwitch and " +
            "4 x 200 Gb/s HDR a node is inferred from its constants and rates.",
          "Collectives are means of 10 trials, not medians, and have outliers, for example reduce-scatter of 1 MiB over 4 ranks (400 us between 41 and 63) and all-gather of 512 KiB over 16 (275 us before 93). The loader smooths them.",
          "all-to-all over 128 ranks is far slower from 128 MiB to 1 GiB than beyond: congestion, kept as measured.",
          "Linear layers: forward pass of square weights only. " +
            "Attention: head size 128, as many key/value heads as heads.",
          "peakFlopsPerSecond and memoryBandwidth are NVIDIA's data " +
            "sheet of the A100-SXM4-80GB; the A800 differs in NVLink only.",
          "runtimeBytes (device context, libraries, communicators) was not measured: 2 GiB is assumed.",
          "The slow-down by overlap is the middle of the paper's range of 1.25 to 1.35.",
        ],
      },
    },
    "profile-invalid",
    "the shipped profile",
  );
}

/** JSON with one curve or module a line, so that changes can be read. */
export function profileText(profile: Profile): string {
  const lists = new Set(["collectives", "modules", "overlaps"]);
  const fields = Object.entries(profile).map(([key, value]) => {
    if (!lists.has(key)) return `${JSON.stringify(key)}: ${JSON.stringify(value)}`;
    return `${JSON.stringify(key)}: [\n  ${(value as unknown[]).map((item) => JSON.stringify(item)).join(",\n  ")}\n ]`;
  });
  return `{\n ${fields.join(",\n ")}\n}\n`;
}

export const MEASUREMENTS_PATH = fileURLToPath(new URL("./data/a800-measurements.json", import.meta.url));
export const PROFILE_PATH = fileURLToPath(
  new URL("../../libs/cost-model/profiles/a800-128.json", import.meta.url),
);

export const readMeasurements = (): Measurements =>
  JSON.parse(readFileSync(MEASUREMENTS_PATH, "utf8")) as Measurements;

if (process.argv[1] === fileURLToPath(import.meta.url))
  writeFileSync(PROFILE_PATH, profileText(a800Profile(readMeasurements())));
