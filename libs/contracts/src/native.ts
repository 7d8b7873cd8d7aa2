import protocol from "../../../native/src/protocol/protocol.json" with { type: "json" };
import { Type, type Static } from "typebox";
import {
  CollectiveSchema,
  HostUseSchema,
  MemoryLinesSchema,
  MeshSchema,
  ModelSchema,
  ModuleShapeSchema,
  OptimizerSchema,
  PlacementSchema,
  PlanSchema,
  PrecisionSchema,
  TimelineSchema,
  WatchdogSchema,
} from "@internevo/domain";

/** Configuration and events of the native programs: one JSON document in, JSON lines out. */
export const NATIVE_PROTOCOL = protocol.version;

const strict = { additionalProperties: false } as const;
const { forwardOverlap, backwardOverlap, ...trainerPlanProperties } = PlanSchema.properties;
const { name: _name, ...trainerModelProperties } = ModelSchema.properties;

/** A file of tokens. */
const tokenFile = {
  path: Type.String(),
  format: Type.Optional(
    Type.Union([Type.Literal("own"), Type.Literal("megatron"), Type.Literal("internevo")], {
      description: "default: by the ending of path",
    }),
  ),
};
/** Which tokens are read. */
const dataFile = {
  ...tokenFile,
  endOfDocumentToken: Type.Optional(Type.Union([Type.Integer({ minimum: 0 }), Type.Null()])),
};

export const TrainerConfigSchema = Type.Object(
  {
    protocol: Type.Literal(NATIVE_PROTOCOL),
    model: Type.Object(trainerModelProperties, strict),
    sequenceLengthTokens: Type.Integer({ minimum: 1 }),
    precision: PrecisionSchema,
    plan: Type.Object(
      {
        ...trainerPlanProperties,
        forwardOverlap: Type.Optional(forwardOverlap),
        backwardOverlap: Type.Optional(backwardOverlap),
      },
      strict,
    ),
    mesh: MeshSchema,
    optimizer: OptimizerSchema,
    data: Type.Object(
      {
        ...dataFile,
        path: Type.Optional(Type.String({ description: "where there are no sources" })),
        sources: Type.Optional(
          Type.Array(
            Type.Object(
              {
                ...tokenFile,
                share: Type.Integer({ minimum: 1, description: "sequences, of the sum of all shares" }),
              },
              strict,
            ),
            { minItems: 1, description: "a mixture" },
          ),
        ),
        packing: Type.Optional(Type.Union([Type.Literal("none"), Type.Literal("documents")])),
        maxDocumentsPerSequence: Type.Optional(Type.Integer({ minimum: 1 })),
      },
      strict,
    ),
    seed: Type.Integer({ minimum: 0 }),
    steps: Type.Integer({ minimum: 1 }),
    validation: Type.Optional(
      Type.Union(
        [
          Type.Object(
            {
              data: Type.Object(dataFile, {
                ...strict,
                description: "held-out data; packing is the training data's",
              }),
              everySteps: Type.Integer({ minimum: 1 }),
              batches: Type.Integer({ minimum: 1 }),
            },
            strict,
          ),
          Type.Null(),
        ],
        { description: "null: nothing is evaluated" },
      ),
    ),
    checkpoint: Type.Union([
      Type.Object(
        {
          directory: Type.String(),
          everySteps: Type.Integer({ minimum: 1 }),
          keepLast: Type.Integer({ minimum: 1 }),
          resume: Type.Union([Type.Literal("latest"), Type.Literal("none")]),
          writing: Type.Optional(
            Type.Union(
              [Type.Literal("automatic"), Type.Literal("asynchronous"), Type.Literal("synchronous")],
              { description: "default automatic: in the background where memory has room" },
            ),
          ),
          onFailure: Type.Optional(
            Type.Union([Type.Literal("continue"), Type.Literal("stop")], {
              description: "default continue: the last good checkpoint stays",
            }),
          ),
        },
        strict,
      ),
      Type.Null(),
    ]),
    initialWeights: Type.Optional(
      Type.Union([
        Type.Object(
          { path: Type.String({ description: "Hugging Face folder, or directory of a checkpoint" }) },
          strict,
        ),
        Type.Null(),
      ]),
    ),
    memoryLimitBytes: Type.Union([Type.Integer({ minimum: 1 }), Type.Null()]),
    leaveFree: Type.Optional(
      Type.Object(
        { share: Type.Number({ minimum: 0, maximum: 1 }), bytes: Type.Integer({ minimum: 0 }) },
        {
          ...strict,
          description:
            "of the disks that checkpoints and timelines are written to: this share, and no more than the bytes; default nothing",
        },
      ),
    ),
    device: Type.Optional(
      Type.Union([Type.Literal("cpu"), Type.Literal("cuda")], {
        description: "what runs the operators; default cpu; cuda: one GPU a rank",
      }),
    ),
    threadsPerRank: Type.Integer({ minimum: 1 }),
    deterministic: Type.Boolean(),
    gradientDumpPath: Type.Union([Type.String(), Type.Null()]),
    timeline: Type.Optional(
      Type.Union([
        Type.Object(
          {
            path: Type.String(),
            ...TimelineSchema.properties,
            capacityEvents: Type.Optional(Type.Integer({ minimum: 1, maximum: 10_000_000 })),
          },
          strict,
        ),
        Type.Null(),
      ]),
    ),
    watchdog: Type.Optional(Type.Union([WatchdogSchema, Type.Null()], { description: "null: none" })),
  },
  strict,
);
export type TrainerConfig = Static<typeof TrainerConfigSchema>;

/** Exit codes of the trainer. */
export const TRAINER_EXIT = {
  done: protocol.exitDone,
  badConfig: protocol.exitBadConfig,
  outOfMemory: protocol.exitOutOfMemory,
  data: protocol.exitData,
  checkpoint: protocol.exitCheckpoint,
  communication: protocol.exitCommunication,
  internal: protocol.exitInternal,
  terminated: protocol.exitTerminated,
} as const;

export const NATIVE_ERROR_CODES = [
  "bad_config",
  "plan_unsupported",
  "out_of_memory",
  "data_error",
  "checkpoint_error",
  "communication_error",
  "internal",
  "not_finite",
] as const;
export const NativeErrorEventSchema = Type.Object({
  event: Type.Literal("error"),
  code: Type.Enum(NATIVE_ERROR_CODES),
  message: Type.String(),
  rank: Type.Optional(Type.Integer()),
  field: Type.Optional(Type.String()),
  value: Type.Optional(Type.Unknown()),
  remedy: Type.Optional(Type.String()),
  continues: Type.Optional(Type.Boolean({ description: "the run goes on all the same" })),
});

const place = Type.Object({ layer: Type.Integer({ minimum: 0 }), phase: Type.String() }, strict);
/** When in a step a piece of memory is in use; native/src/trainer/memory_map.h says it in full. */
const LifetimeSchema = Type.Union([
  Type.Object({ kind: Type.Literal("step") }, { ...strict, description: "all the time" }),
  Type.Object(
    {
      kind: Type.Literal("work"),
      phases: Type.Array(Type.String()),
      layers: Type.Optional(Type.Array(Type.Integer())),
    },
    { ...strict, description: "inside those phases only, and nothing is kept" },
  ),
  Type.Object(
    { kind: Type.Literal("kept"), chunk: Type.Integer(), place: Type.Integer(), from: place, until: place },
    {
      ...strict,
      description:
        "from the forward to the backward pass of the micro-batches whose number mod the chunk's inFlight is `place`",
    },
  ),
]);
export const MemoryMapSchema = Type.Object(
  {
    stage: Type.Integer({ minimum: 0 }),
    arenaBytes: Type.Integer({ minimum: 0 }),
    phases: Type.Array(Type.String()),
    operations: Type.Array(
      Type.Object(
        {
          pass: Type.Union([Type.Literal("forward"), Type.Literal("backward")]),
          microBatch: Type.Integer(),
          chunk: Type.Integer(),
        },
        strict,
      ),
    ),
    chunks: Type.Array(
      Type.Object({ firstLayer: Type.Integer(), layers: Type.Integer(), inFlight: Type.Integer() }, strict),
    ),
    pieces: Type.Array(
      Type.Object(
        {
          name: Type.String(),
          line: Type.String(),
          offset: Type.Integer({ minimum: 0 }),
          bytes: Type.Integer({ minimum: 0 }),
          lifetime: LifetimeSchema,
          firstUse: Type.Optional(Type.String()),
          lastUse: Type.Optional(Type.String()),
          uses: Type.Optional(Type.Array(Type.String(), { description: "of pieces that share memory" })),
        },
        strict,
      ),
    ),
  },
  strict,
);
export type MemoryMap = Static<typeof MemoryMapSchema>;
export type MemoryPiece = MemoryMap["pieces"][number];

/** What the hosts did while the ranks measured or trained; just before `done`. */
const HostsEventSchema = Type.Object({ event: Type.Literal("hosts"), hosts: Type.Array(HostUseSchema) });

/** What the rank that needs most keeps in its host's memory; absent of trainers that kept nothing there. */
const hostMemoryBytes = Type.Optional(Type.Integer({ minimum: 0 }));

export const TrainerEventSchema = Type.Union([
  Type.Object({
    event: Type.Literal("started"),
    worldSize: Type.Integer(),
    hosts: Type.Array(Type.String()),
    parameters: Type.Integer(),
    memory: MemoryLinesSchema,
    plannedPeakBytes: Type.Integer(),
    hostMemoryBytes,
    resumedFromStep: Type.Integer(),
  }),
  Type.Object(
    {
      event: Type.Literal("product"),
      library: Type.String({ description: "with its release and the device" }),
      product: Type.String({ description: "all that the choice depends on" }),
      algorithm: Type.String(),
      answer: Type.Integer({ minimum: 0, description: "place among the library's answers" }),
      answers: Type.Integer({ minimum: 1 }),
      recorded: Type.Boolean(),
      seconds: Type.Optional(Type.Number()),
      firstSeconds: Type.Optional(Type.Number()),
    },
    { description: "who computes a matrix product on a GPU: for people; nothing here reads it" },
  ),
  Type.Object({
    event: Type.Literal("plan"),
    worldSize: Type.Integer(),
    parameters: Type.Integer(),
    memory: MemoryLinesSchema,
    plannedPeakBytes: Type.Integer(),
    hostMemoryBytes,
    stages: Type.Array(
      Type.Object({
        stage: Type.Integer(),
        layers: Type.Integer(),
        memory: MemoryLinesSchema,
        plannedPeakBytes: Type.Integer(),
        hostMemoryBytes,
      }),
    ),
    memoryMap: Type.Optional(MemoryMapSchema),
  }),
  Type.Object(
    { event: Type.Literal("communicators"), plannedBytes: Type.Integer(), measuredBytes: Type.Integer() },
    { description: "what the first step took of a GPU outside the arena: for people; nothing here reads it" },
  ),
  Type.Object({
    event: Type.Literal("step"),
    step: Type.Integer({ minimum: 1 }),
    loss: Type.Number(),
    gradientNorm: Type.Number(),
    learningRate: Type.Number(),
    tokens: Type.Integer(),
    stepTimeSeconds: Type.Number(),
    tokensPerSecond: Type.Number(),
    computeSeconds: Type.Number(),
    communicationSeconds: Type.Number(),
    exposedCommunicationSeconds: Type.Number(),
    bubbleSeconds: Type.Optional(
      Type.Number({ description: "waiting for activations or gradients of a neighbouring stage" }),
    ),
    peakMemoryBytes: Type.Integer(),
    residentPeakBytes: Type.Integer(),
  }),
  Type.Object(
    {
      event: Type.Literal("evaluating"),
      step: Type.Integer({ minimum: 0 }),
      batch: Type.Integer({ minimum: 1 }),
      batches: Type.Integer({ minimum: 1 }),
    },
    { description: "a batch of held-out data was evaluated: a sign of life; nothing here reads it" },
  ),
  Type.Object(
    {
      event: Type.Literal("validation"),
      step: Type.Integer({ minimum: 0 }),
      loss: Type.Number(),
      tokens: Type.Integer({ minimum: 1 }),
      seconds: Type.Number(),
    },
    { description: "the loss of held-out data after that step; 0: before the first" },
  ),
  Type.Object({
    event: Type.Literal("checkpoint"),
    step: Type.Integer(),
    path: Type.String(),
    bytes: Type.Integer(),
    seconds: Type.Number(),
    stallSeconds: Type.Optional(Type.Number()),
  }),
  NativeErrorEventSchema,
  HostsEventSchema,
  Type.Object({
    event: Type.Literal("done"),
    step: Type.Integer(),
    loss: Type.Number(),
    reason: Type.Union([Type.Literal("completed"), Type.Literal("terminated")]),
  }),
]);
export type TrainerEvent = Static<typeof TrainerEventSchema>;

const probeCollective = Type.Object(
  {
    op: CollectiveSchema,
    bytes: Type.Integer({ minimum: 1 }),
    groups: Type.Array(Type.Array(Type.Integer({ minimum: 0 }))),
    placement: PlacementSchema,
  },
  strict,
);
export const ProbeConfigSchema = Type.Object(
  {
    protocol: Type.Literal(NATIVE_PROTOCOL),
    threadsPerRank: Type.Integer({ minimum: 1 }),
    minimumSamples: Type.Integer({ minimum: 1 }),
    maximumSeconds: Type.Number({ exclusiveMinimum: 0, description: "bound for one point" }),
    targetRelativeSpread: Type.Number({ exclusiveMinimum: 0 }),
    collectives: Type.Array(probeCollective),
    modules: Type.Array(ModuleShapeSchema),
    overlaps: Type.Array(Type.Object({ module: ModuleShapeSchema, collective: probeCollective }, strict)),
    device: Type.Boolean({ description: "describe the device too" }),
    deviceKind: Type.Optional(
      Type.Union([Type.Literal("cpu"), Type.Literal("cuda")], {
        description: "what is measured; default cpu; cuda: one GPU a rank, by its own clock",
      }),
    ),
  },
  strict,
);
export type ProbeConfig = Static<typeof ProbeConfigSchema>;

const spread = {
  medianSeconds: Type.Number(),
  p10Seconds: Type.Number(),
  p90Seconds: Type.Number(),
  samples: Type.Integer(),
};
export const ProbeEventSchema = Type.Union([
  Type.Object({
    event: Type.Literal("device"),
    name: Type.String(),
    cores: Type.Integer(),
    isa: Type.String(),
    peakFlopsPerSecondFp32: Type.Number(),
    peakFlopsPerSecondBf16: Type.Number(),
    memoryBandwidthBytesPerSecond: Type.Number(),
    // Absent of probes that were built before they measured it.
    toHostBytesPerSecond: Type.Optional(Type.Number()),
    toDeviceBytesPerSecond: Type.Optional(Type.Number()),
    runtimeBytes: Type.Integer(),
    compiler: Type.String(),
    libraries: Type.Record(Type.String(), Type.String()),
    hosts: Type.Array(Type.String()),
  }),
  Type.Object({
    event: Type.Literal("collective"),
    op: CollectiveSchema,
    bytes: Type.Integer(),
    groupSize: Type.Integer(),
    placement: PlacementSchema,
    ...spread,
  }),
  Type.Object({ event: Type.Literal("module"), shape: ModuleShapeSchema, flops: Type.Number(), ...spread }),
  Type.Object({
    event: Type.Literal("overlap"),
    shape: ModuleShapeSchema,
    op: CollectiveSchema,
    bytes: Type.Integer(),
    groupSize: Type.Integer(),
    aloneComputeSeconds: Type.Number(),
    aloneCommunicationSeconds: Type.Number(),
    togetherSeconds: Type.Number(),
    slowdown: Type.Number(),
  }),
  NativeErrorEventSchema,
  HostsEventSchema,
  Type.Object({ event: Type.Literal("done"), seconds: Type.Number() }),
]);
export type ProbeEvent = Static<typeof ProbeEventSchema>;
