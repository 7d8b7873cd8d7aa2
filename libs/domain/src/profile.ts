import { Type, type Static } from "typebox";
import { MAXIMUM_BYTES, MAXIMUM_RANKS } from "./bounds.ts";
import { formatCounted, formatInteger } from "./figures.ts";
import { HostUseSchema, summedDisturbances } from "./host-use.ts";
import { ClusterSchema } from "./job.ts";
import { DECODER_PROGRAM, type ByUnit } from "./layer-program.ts";
import { ModelSchema } from "./model.ts";
import { splitProperties } from "./sequence-split.ts";
import { Line } from "./text.ts";
import { formatBytes } from "./units.ts";

export const COLLECTIVES = [
  "all-reduce",
  "all-gather",
  "reduce-scatter",
  "all-to-all",
  "broadcast",
  "point-to-point",
] as const;
export const CollectiveSchema = Type.Enum(COLLECTIVES);
export type Collective = (typeof COLLECTIVES)[number];

export const PLACEMENTS = ["intra-node", "inter-node", "mixed"] as const;
export const PlacementSchema = Type.Enum(PLACEMENTS);
export type Placement = (typeof PLACEMENTS)[number];

/** From less than a cycle to a day: whatever is outside was not measured. */
const seconds = Type.Number({ minimum: 1e-10, maximum: 86_400 });
const samples = Type.Optional(Type.Integer({ minimum: 1, maximum: 1e12 }));
const noisy = Type.Optional(
  Type.Literal(true, {
    description: "its samples lay too far apart, or other work ran beside it; absent where neither is known",
  }),
);
const stillNoisy = Type.Optional(
  Type.Literal(true, {
    description:
      "noisy also when another job measured it again: jobs go on with it while the profile is fresh",
  }),
);
const estimated = Type.Optional(
  Type.Literal(true, {
    description: "made from published figures, not measured; absent where it was measured",
  }),
);
const bytes = Type.Integer({ minimum: 1, maximum: MAXIMUM_BYTES });
const groupSize = Type.Integer({ minimum: 2, maximum: MAXIMUM_RANKS });

/**
 * One measured curve of VPro. `bytes` counts the full tensor of the operation: the gathered size of an
 * all-gather, the input of a reduce-scatter, everything one rank sends in an all-to-all.
 */
export const CollectiveCurveSchema = Type.Object(
  {
    op: CollectiveSchema,
    groupSize,
    placement: PlacementSchema,
    points: Type.Array(
      Type.Object(
        {
          bytes,
          medianSeconds: seconds,
          p10Seconds: Type.Optional(seconds),
          p90Seconds: Type.Optional(seconds),
          samples,
          noisy,
          stillNoisy,
          estimated,
        },
        { additionalProperties: false },
      ),
      { minItems: 1 },
    ),
  },
  { additionalProperties: false },
);
export type CollectiveCurve = Static<typeof CollectiveCurveSchema>;

const size = Type.Integer({ minimum: 1, maximum: 2 ** 50 });
const pass = Type.Union([Type.Literal("forward"), Type.Literal("backward")]);
const computePrecision = Type.Union([Type.Literal("fp32"), Type.Literal("bf16")]);
/** What is measured of a module of a layer, and how it is named between planner, profiler and probe. */
export const ModuleShapeSchema = Type.Union([
  Type.Object(
    {
      module: Type.Literal("linear"),
      pass,
      precision: computePrecision,
      rows: size,
      inputs: size,
      outputs: size,
    },
    { additionalProperties: false },
  ),
  Type.Object(
    {
      module: Type.Literal("attention"),
      pass,
      precision: computePrecision,
      batch: size,
      sequence: size,
      heads: size,
      kvHeads: size,
      headSize: size,
    },
    { additionalProperties: false },
  ),
  Type.Object(
    {
      module: Type.Union([Type.Literal("rmsnorm"), Type.Literal("swiglu"), Type.Literal("residual-add")]),
      pass,
      precision: computePrecision,
      rows: size,
      width: size,
    },
    { additionalProperties: false },
  ),
  Type.Object(
    {
      module: Type.Literal("rope"),
      pass,
      precision: computePrecision,
      rows: size,
      heads: size,
      headSize: size,
    },
    { additionalProperties: false },
  ),
  Type.Object(
    {
      module: Type.Literal("embedding"),
      pass,
      precision: computePrecision,
      rows: size,
      width: size,
      vocabulary: size,
    },
    { additionalProperties: false },
  ),
  Type.Object(
    {
      module: Type.Literal("head-loss"),
      pass: Type.Literal("forward-backward"),
      precision: computePrecision,
      rows: size,
      width: size,
      vocabulary: size,
    },
    { additionalProperties: false },
  ),
  Type.Object(
    {
      module: Type.Union([Type.Literal("adamw"), Type.Literal("squared-norm"), Type.Literal("accumulate")]),
      pass: Type.Literal("update"),
      precision: computePrecision,
      elements: size,
    },
    { additionalProperties: false },
  ),
]);
export type ModuleShape = Static<typeof ModuleShapeSchema>;

export const ModuleTimeSchema = Type.Object(
  {
    shape: ModuleShapeSchema,
    medianSeconds: seconds,
    p10Seconds: Type.Optional(seconds),
    p90Seconds: Type.Optional(seconds),
    samples,
    noisy,
    stillNoisy,
    estimated,
  },
  { additionalProperties: false },
);
export type ModuleTime = Static<typeof ModuleTimeSchema>;

/**
 * OPro: the slow-down R when a module and a collective run together, over the longer of the two alone; with
 * their times alone where they are known.
 */
export const OverlapSchema = Type.Object(
  {
    shape: Type.Optional(ModuleShapeSchema),
    op: CollectiveSchema,
    bytes: Type.Optional(bytes),
    groupSize,
    placement: Type.Optional(PlacementSchema),
    slowdown: Type.Number({ minimum: 0.01, maximum: 10_000 }),
    computeSeconds: Type.Optional(seconds),
    communicationSeconds: Type.Optional(seconds),
    noisy,
    stillNoisy,
    estimated,
  },
  { additionalProperties: false },
);
export type Overlap = Static<typeof OverlapSchema>;

const part = Type.Number({ minimum: 0, maximum: 86_400 });
const unitCount = DECODER_PROGRAM.units.length;
// A list of as many rather than a tuple, whose keyword differs between the versions of JSON Schema.
const parts = Type.Unsafe<ByUnit>(Type.Array(part, { minItems: unitCount, maxItems: unitCount }));

/**
 * What decides the time of a layer on one rank, and how the ranks of a sequence share it: the widths of a
 * model, what its attention has, b, S, s_sp, s_tp, c. How rotary positions are scaled decides no time.
 */
export const SliceShapeSchema = Type.Object(
  {
    precision: computePrecision,
    hiddenSize: size,
    heads: size,
    kvHeads: size,
    ffnHiddenSize: size,
    vocabularySize: size,
    headSize: ModelSchema.properties.headSize,
    queryKeyNorm: ModelSchema.properties.queryKeyNorm,
    queryKeyValueBias: ModelSchema.properties.queryKeyValueBias,
    slidingWindowTokens: ModelSchema.properties.slidingWindowTokens,
    microBatchSize: size,
    sequenceLengthTokens: size,
    ...splitProperties(size),
  },
  { additionalProperties: false },
);
export type SliceShape = Static<typeof SliceShapeSchema>;

/**
 * A micro-batch as the trainer itself ran it, by parts, in seconds of one layer (embedding and head: of one
 * micro-batch). Products are listed in the order of a layer's units, each with the norms and element-wise
 * modules around it; attention and communication are apart. All parts together are the time of the step,
 * waits of ranks for one another among them.
 */
export const SlicePartsSchema = Type.Object(
  {
    forward: parts,
    forwardAttention: part,
    forwardCommunication: part,
    backward: parts,
    backwardAttention: part,
    backwardCommunication: part,
    embedding: part,
    embeddingCommunication: part,
    head: part,
    headCommunication: part,
  },
  { additionalProperties: false },
);
export type SliceParts = Static<typeof SlicePartsSchema>;

const wait = Type.Number({ minimum: 1, maximum: 1000 });

/**
 * How many times longer ranks that work on different sequences take when they wait for one another before
 * every unit of a layer, or every layer, than when they do once a step: ranks are not equally fast from one
 * moment to the next, and who waits more often waits longer in all.
 */
export const SliceWaitsSchema = Type.Object({ unit: wait, layer: wait }, { additionalProperties: false });
export type SliceWaits = Static<typeof SliceWaitsSchema>;

/**
 * `layers` and `microBatches` say what was run; the three times are of a whole micro-batch, over the measured
 * steps.
 */
export const SliceTimeSchema = Type.Object(
  {
    shape: SliceShapeSchema,
    layers: size,
    microBatches: size,
    parts: SlicePartsSchema,
    waits: Type.Optional(SliceWaitsSchema),
    medianSeconds: seconds,
    p10Seconds: Type.Optional(seconds),
    p90Seconds: Type.Optional(seconds),
    samples,
    noisy,
    stillNoisy,
  },
  { additionalProperties: false },
);
export type MeasuredSlice = Static<typeof SliceTimeSchema>;
/** A slice to be measured, and with how many layers. */
export type SliceRequest = Pick<MeasuredSlice, "shape" | "layers">;

const flopsPerSecond = Type.Number({ minimum: 1e6, maximum: 1e18 });

/** Whether the machine was quiet while a profile was measured. */
export const ProfileQualitySchema = Type.Object(
  {
    verdict: Type.Enum(["quiet", "noisy"], {
      description: "noisy: so many points are noisy that new jobs measure these again, once",
    }),
    points: Type.Integer({ minimum: 0 }),
    noisyPoints: Type.Integer({ minimum: 0 }),
    mostSpreadPercent: Type.Number({
      minimum: 0,
      description: "10th to 90th percentile over the median: beyond it a point is noisy",
    }),
    mostOthersPercent: Type.Number({
      minimum: 0,
      description:
        "share of a host's processor time that others took: beyond it all points measured meanwhile are noisy",
    }),
    measuredAgain: Type.Integer({ minimum: 0, description: "measurements of noisy points beyond the first" }),
    secondsPerPoint: Type.Optional(
      Type.Number({
        minimum: 0,
        description:
          "how long the last measurement took, with what was measured again, over the points that were needed",
      }),
    ),
    worstSpreadPercent: Type.Number({
      minimum: 0,
      description: "of the point whose samples lie furthest apart",
    }),
    disturbances: Type.Array(Type.String(), { description: "what ran beside noisy points, in figures" }),
    hosts: Type.Array(HostUseSchema, { description: "what the hosts did during the last measurement" }),
  },
  { additionalProperties: false },
);
export type ProfileQuality = Static<typeof ProfileQualitySchema>;

/** Everything measured of one cluster, with where each number comes from. */
export const ProfileSchema = Type.Object(
  {
    schemaVersion: Type.Literal(1),
    name: Line(300),
    cluster: Type.Object(
      {
        nodes: ClusterSchema.properties.nodes,
        gpusPerNode: ClusterSchema.properties.gpusPerNode,
        memoryPerGpuBytes: Type.Optional(ClusterSchema.properties.memoryPerGpuBytes),
      },
      { additionalProperties: false },
    ),
    device: Type.Object(
      {
        name: Line(300),
        kind: Type.Optional(
          Type.Literal("gpu", { description: "absent: ranks on processor cores, or it is not known" }),
        ),
        peakFlopsPerSecondFp32: flopsPerSecond,
        peakFlopsPerSecondBf16: flopsPerSecond,
        memoryBandwidthBytesPerSecond: Type.Number({ minimum: 1e6, maximum: 1e16 }),
        toHostBytesPerSecond: Type.Optional(
          Type.Number({
            minimum: 1e6,
            maximum: 1e16,
            description:
              "copies of one rank into pinned memory of its host while all ranks of a node copy; absent: unknown, so no plan keeps activations there",
          }),
        ),
        toDeviceBytesPerSecond: Type.Optional(
          Type.Number({ minimum: 1e6, maximum: 1e16, description: "the same, back" }),
        ),
        runtimeBytes: Type.Integer({
          minimum: 0,
          maximum: MAXIMUM_BYTES,
          description:
            "memory of a rank before the arena: libraries, communicators, context; measured on processors, with what another start may take more",
        }),
      },
      { additionalProperties: false },
    ),
    executor: Type.Object(
      {
        forwardOverlap: Type.Union([
          Type.Literal("none"),
          Type.Literal("block"),
          Type.Literal("inter-layer"),
          Type.Literal("intra-layer"),
        ]),
        backwardOverlap: Type.Union([
          Type.Literal("none"),
          Type.Literal("block"),
          Type.Literal("intra-layer"),
        ]),
        updatedParameters: Type.Optional(
          Type.Union([Type.Literal("within-update"), Type.Literal("into-next-step")], {
            description:
              "until when gathers of updated parameters may take in plans that overlap; default: into the next step, as our trainer lets them",
          }),
        ),
        tensorActivations: Type.Optional(
          Type.Union([Type.Literal("waited-for"), Type.Literal("beside-backward")], {
            description:
              "whether tensor ranks move activations beside the backward pass in plans that overlap it; default: beside it, as our trainer does",
          }),
        ),
      },
      { additionalProperties: false, description: "how the executor on this cluster overlaps communication" },
    ),
    collectives: Type.Array(CollectiveCurveSchema),
    modules: Type.Array(ModuleTimeSchema),
    overlaps: Type.Array(OverlapSchema),
    slices: Type.Optional(
      Type.Array(SliceTimeSchema, {
        description:
          "micro-batches as the trainer ran them, which correct what is composed of modules and collectives",
      }),
    ),
    quality: Type.Optional(ProfileQualitySchema),
    provenance: Type.Object(
      {
        source: Line(1000),
        measuredAt: Type.Union([Line(100), Type.Null()]),
        versions: Type.Record(Line(100), Line(1000), { additionalProperties: false }),
        command: Type.Union([Line(5000), Type.Null()]),
        notes: Type.Array(Line(65_536)),
      },
      { additionalProperties: false },
    ),
  },
  { additionalProperties: false },
);
export type Profile = Static<typeof ProfileSchema>;

/** How quiet a profile's measurement was, in sentences. */
export function qualityWords({
  verdict,
  points,
  noisyPoints,
  worstSpreadPercent,
  mostSpreadPercent,
  measuredAgain,
  disturbances,
}: ProfileQuality): string[] {
  const again = measuredAgain === 0 ? "" : `, after ${formatCounted(measuredAgain, "repeated measurement")}`;
  const counts =
    noisyPoints === 0
      ? `None of ${formatInteger(points)} points is noisy${again}.`
      : `${formatInteger(noisyPoints)} of ${formatInteger(points)} points are noisy${again}: other work ran beside them, or their samples lie further apart than ${mostSpreadPercent}% of their median (the worst: ${formatInteger(worstSpreadPercent)}%).`;
  const fate =
    verdict === "noisy"
      ? [
          "New jobs measure the noisy points that they need again, each point once while the profile is fresh.",
        ]
      : [];
  return [counts, ...summedDisturbances(disturbances).map((each) => `${each}.`), ...fate];
}

/** How many of a profile's points are estimates from published figures, of how many. */
export function estimatedPoints({ modules, collectives, overlaps }: Profile): {
  readonly estimated: number;
  readonly all: number;
} {
  const points: readonly { readonly estimated?: true }[] = [
    ...modules,
    ...overlaps,
    ...collectives.flatMap((curve) => curve.points),
  ];
  return { estimated: points.filter((point) => point.estimated === true).length, all: points.length };
}

const moreMemoryWords = (has: number | undefined, plannedWith: number | undefined): string =>
  has === undefined || plannedWith === undefined || plannedWith <= has
    ? ""
    : ` Its GPUs have ${formatBytes(has)} for a rank, and the job's \`cluster.memoryPerGpu\` is ` +
      `${formatBytes(plannedWith)}: plans may not fit. Give the job what they have.`;

/**
 * Says of a profile that it is estimated, wholly or partly; undefined of one that was measured.
 * @param cluster of the job that is planned with it: its GPUs may have more memory than the profile's, which
 * is that of a kind of GPU. A measured profile has the memory of the job that measured it.
 */
export function estimatedProfileWords(
  profile: Profile,
  cluster?: { readonly memoryPerGpuBytes: number },
): string | undefined {
  const { estimated, all } = estimatedPoints(profile);
  if (estimated === 0) return undefined;
  const part = estimated === all ? "" : ` in ${formatInteger(estimated)} of its ${formatInteger(all)} points`;
  return (
    `Profile ${profile.name} is *estimated*${part} from published figures, not measured: ranges say how far off ` +
    "it may be. `internevo profile import --into` puts your own measurements in its place." +
    moreMemoryWords(profile.cluster.memoryPerGpuBytes, cluster?.memoryPerGpuBytes)
  );
}
