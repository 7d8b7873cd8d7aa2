import {
  ProbeConfigSchema,
  ProbeEventSchema,
  TrainerConfigSchema,
  TrainerEventSchema,
  trainerConfig,
  type TrainerConfig,
} from "@internevo/contracts";
import {
  measurementCount,
  requiredMeasurements,
  unionOf,
  type DevicePeak,
  type Measurements,
} from "@internevo/cost-model";
import {
  ClusterSchema,
  formatCounted,
  formatInteger,
  JobSpecSchema,
  PlacementSchema,
  planLabel,
  PlanSchema,
  ProblemError,
  SliceTimeSchema,
  type Candidate,
  type JobSpec,
} from "@internevo/domain";
import { buildMesh } from "@internevo/plan";
import { Type, type Static } from "typebox";
import { clusterRankCount, probeConfig, type ProbeEffort } from "./probe.ts";
import { runtimeRun } from "./runtime.ts";
import { sliceRun } from "./slices.ts";

/**
 * A kit: everything that a node without services and without a planner has to run so that a profile can be
 * assembled elsewhere, and plans whose prediction is to be compared. `internevo profile prepare` makes it,
 * `gpu-check --kit` runs it, `internevo profile assemble` reads the answers.
 */
export const KIT_FORMAT = "internevo-measurement-kit";
export const KIT_VERSION = 1;

const strict = { additionalProperties: false } as const;
const named = { id: Type.String(), what: Type.String(), plannedSeconds: Type.Number({ minimum: 0 }) };
const tokens = Type.Object({ count: Type.Integer(), vocabularySize: Type.Integer() }, strict);
const request = Type.Object(
  { shape: SliceTimeSchema.properties.shape, layers: SliceTimeSchema.properties.layers },
  strict,
);
const trained = { ...named, config: TrainerConfigSchema, tokens };

export const KitPieceSchema = Type.Union([
  Type.Object({ ...trained, kind: Type.Literal("runtime") }, strict),
  Type.Object(
    {
      ...named,
      kind: Type.Literal("probe"),
      config: ProbeConfigSchema,
      overlapPlacements: Type.Array(PlacementSchema),
    },
    strict,
  ),
  Type.Object(
    {
      ...trained,
      kind: Type.Literal("slice"),
      request,
      microBatches: Type.Integer({ minimum: 1 }),
      rounds: Type.Integer({ minimum: 1 }),
    },
    strict,
  ),
  Type.Object(
    {
      ...trained,
      kind: Type.Literal("plan"),
      spec: JobSpecSchema,
      plan: PlanSchema,
      label: Type.String(),
      predicted: Type.Object(
        { profile: Type.String(), stepTimeSeconds: Type.Number(), peakMemoryBytes: Type.Integer() },
        strict,
      ),
    },
    strict,
  ),
]);
export type KitPiece = Static<typeof KitPieceSchema>;

/** What every answer repeats of its kit, so that answers can be assembled without it. */
export const KitAboutSchema = Type.Object(
  {
    format: Type.Literal(KIT_FORMAT),
    version: Type.Literal(KIT_VERSION),
    madeAt: Type.String(),
    jobs: Type.Array(Type.String()),
    cluster: Type.Pick(ClusterSchema, ["name", "nodes", "gpusPerNode", "memoryPerGpuBytes", "device"]),
    ranks: Type.Integer({ minimum: 1 }),
    threadsPerRank: Type.Integer({ minimum: 1 }),
    probeDigest: Type.Union([Type.String(), Type.Null()]),
    points: Type.Integer({ minimum: 0 }),
    /** Ids of the pieces that a profile is made of. */
    pieces: Type.Array(Type.String()),
  },
  strict,
);
export type KitAbout = Static<typeof KitAboutSchema>;

export const KitSchema = Type.Object({ about: KitAboutSchema, pieces: Type.Array(KitPieceSchema) }, strict);
export type Kit = Static<typeof KitSchema>;

/** What `gpu-check` leaves of a piece: the piece without its configuration, and what the program said. */
export const KitAnswerSchema = Type.Object({
  kit: KitAboutSchema,
  piece: Type.Object({ id: Type.String(), kind: Type.String() }),
});
export const ProbeAnswerSchema = Type.Object({
  piece: Type.Object({ overlapPlacements: Type.Array(PlacementSchema) }),
  events: Type.Array(ProbeEventSchema),
  seconds: Type.Number(),
});
export const RuntimeAnswerSchema = Type.Object({ events: Type.Array(TrainerEventSchema) });
/** A plan that was tried, its job, and what was predicted of it when the kit was made. */
export const PlanAnswerSchema = Type.Object({
  kit: KitAboutSchema,
  piece: Type.Object({
    spec: JobSpecSchema,
    plan: PlanSchema,
    label: Type.String(),
    predicted: Type.Object({
      profile: Type.String(),
      stepTimeSeconds: Type.Number(),
      peakMemoryBytes: Type.Integer(),
    }),
  }),
  refused: Type.Optional(Type.Boolean()),
  medianStepSeconds: Type.Optional(Type.Number()),
  peakMemoryBytes: Type.Optional(Type.Integer()),
});
export type PlanAnswer = Static<typeof PlanAnswerSchema>;
export const SliceAnswerSchema = Type.Object({
  piece: Type.Object({ request, microBatches: Type.Integer({ minimum: 1 }) }),
  noRoom: Type.Optional(Type.Boolean()),
  rounds: Type.Array(
    Type.Object({ events: Type.Array(TrainerEventSchema), timeline: Type.String({ minLength: 1 }) }),
  ),
});

/** The node writes tokens and timelines where it likes; these stand in the configurations until then. */
const TOKENS_PATH = "tokens";
const TIMELINE_PATH = "timeline";

/** So many points of the probe are one case of the check. */
const MOST_POINTS = 40;
/** A program's start, its GPU's context and first calls. */
const START_SECONDS = 4;
/** What a point takes beside its measurement: memory, numbers, first calls. */
const POINT_SECONDS = 0.25;
/** Weights of a whole plan, and its arena. */
const WEIGHTS_SECONDS = 2;
const PLAN_STEPS = 3;

export interface KitOptions {
  /** Of one cluster. Plans are those of the first. */
  readonly jobs: readonly JobSpec[];
  readonly threadsPerRank: number;
  readonly effort: ProbeEffort;
  /** How fast the device is, about: it decides how many steps of a slice fit the time. */
  readonly device: DevicePeak;
  readonly sliceSeconds: number;
  readonly sliceRounds: number;
  readonly probeDigest: string | null;
  /** Plans to run, with what was predicted of them by the profile of this name. */
  readonly plans: readonly Candidate[];
  readonly profileName: string;
  readonly madeAt: Date;
}

const parts = <T>(list: readonly T[], most: number): T[][] => {
  const count = Math.ceil(list.length / most);
  return Array.from({ length: count }, (_, index) =>
    list.slice(Math.floor((index * list.length) / count), Math.floor(((index + 1) * list.length) / count)),
  );
};

function onlyCluster(jobs: readonly JobSpec[]): JobSpec["cluster"] {
  const [first, ...rest] = jobs;
  if (!first) throw new Error("a kit needs a job");
  const { cluster } = first;
  if (cluster.nodes !== 1)
    throw new ProblemError("bad-request", "a kit is measured on one node", [
      {
        field: "cluster.nodes",
        value: cluster.nodes,
        message: "is more than one node",
        remedy:
          "give a job whose cluster has one node; several nodes are measured by `internevo profile measure`",
      },
    ]);
  for (const { name, cluster: other } of rest) {
    const fields = ["name", "nodes", "gpusPerNode", "memoryPerGpuBytes", "device"] as const;
    const field = fields.find((each) => other[each] !== cluster[each]);
    if (field !== undefined)
      throw new ProblemError("bad-request", "the jobs of a kit have one cluster", [
        {
          field: `cluster.${field}`,
          value: other[field],
          message: `of ${name} is not that of ${first.name}`,
          remedy: "give jobs of one cluster, and make a kit for each cluster",
        },
      ]);
  }
  return cluster;
}

/** Runs of the probe, each of so many points. */
function probePieces(
  needed: Measurements,
  { threadsPerRank, effort }: KitOptions,
  cluster: ReturnType<typeof onlyCluster>,
): KitPiece[] {
  const points = [
    ...needed.modules.map((one) => ({ modules: [one] })),
    ...needed.collectives.map((one) => ({ collectives: [one] })),
    ...needed.overlaps.map((one) => ({ overlaps: [one] })),
  ];
  return parts(points, MOST_POINTS).map((part, index): KitPiece => {
    const own = { modules: [], collectives: [], overlaps: [], slices: [] };
    const wanted = {
      ...own,
      modules: part.flatMap((one) => ("modules" in one ? one.modules : [])),
      collectives: part.flatMap((one) => ("collectives" in one ? one.collectives : [])),
      overlaps: part.flatMap((one) => ("overlaps" in one ? one.overlaps : [])),
    };
    return {
      id: `probe.${index + 1}`,
      kind: "probe",
      what: `${formatCounted(part.length, "point")} of the profile: modules, collectives, overlaps`,
      plannedSeconds:
        START_SECONDS + Math.ceil(part.length * (effort.maximumSecondsPerPoint + POINT_SECONDS)),
      config: {
        ...probeConfig({ needed: wanted, threadsPerRank, effort, cluster }),
        // The device is described once.
        device: index === 0,
      },
      overlapPlacements: wanted.overlaps.map(({ collective }) => collective.placement),
    };
  });
}

/** Runs of the trainer, each of one slice. */
function slicePieces(
  requests: Measurements["slices"],
  { threadsPerRank, device, sliceSeconds, sliceRounds }: KitOptions,
  cluster: ReturnType<typeof onlyCluster>,
): KitPiece[] {
  const ranks = clusterRankCount(cluster);
  return requests.map((request, index): KitPiece => {
    const { shape } = request;
    const run = sliceRun(request, {
      ranks,
      threadsPerRank,
      cluster,
      device,
      seconds: sliceSeconds,
      dataPath: TOKENS_PATH,
      timelinePath: TIMELINE_PATH,
    });
    return {
      id: `slice.${index + 1}`,
      kind: "slice",
      what: `a micro-batch of ${formatCounted(shape.microBatchSize, "sequence")} of ${formatInteger(shape.sequenceLengthTokens)} tokens in the trainer, ${formatCounted(shape.sequenceParallel, "rank")} a sequence`,
      plannedSeconds: Math.ceil(sliceRounds * (START_SECONDS + sliceSeconds)),
      request,
      rounds: sliceRounds,
      ...run,
    };
  });
}

/**
 * What a node must run for a profile of these jobs, and for a comparison of these plans. @throws ProblemError
 * for jobs of several clusters or nodes.
 */
export function measurementKit(options: KitOptions): Kit {
  const { jobs, threadsPerRank, plans, profileName } = options;
  const cluster = onlyCluster(jobs);
  const ranks = clusterRankCount(cluster);
  const needed = unionOf(jobs.map(requiredMeasurements));
  const runtime = runtimeRun({ ranks, threadsPerRank, cluster, dataPath: TOKENS_PATH });
  const pieces: KitPiece[] = [
    {
      id: "runtime",
      kind: "runtime",
      what: "memory of a rank beside its plan",
      plannedSeconds: START_SECONDS,
      ...runtime,
    },
    ...probePieces(needed, options, cluster),
    ...slicePieces(needed.slices, options, cluster),
  ];
  const ofProfile = pieces.map(({ id }) => id);
  const [job] = jobs;
  for (const [index, { plan, predicted }] of plans.entries())
    pieces.push(planPiece(`plan.${index + 1}`, job as JobSpec, plan, predicted, profileName, threadsPerRank));
  return {
    about: {
      format: KIT_FORMAT,
      version: KIT_VERSION,
      madeAt: options.madeAt.toISOString(),
      jobs: jobs.map(({ name }) => name),
      cluster: {
        name: cluster.name,
        nodes: cluster.nodes,
        gpusPerNode: cluster.gpusPerNode,
        memoryPerGpuBytes: cluster.memoryPerGpuBytes,
        ...(cluster.device === undefined ? {} : { device: cluster.device }),
      },
      ranks,
      threadsPerRank,
      probeDigest: options.probeDigest,
      points: measurementCount(needed),
      pieces: ofProfile,
    },
    pieces,
  };
}

function planPiece(
  id: string,
  job: JobSpec,
  plan: Candidate["plan"],
  predicted: Candidate["predicted"],
  profile: string,
  threadsPerRank: number,
): KitPiece {
  const { watchdog: _watchdog, data: _data, ...spec } = job;
  const config: TrainerConfig = {
    ...trainerConfig({
      spec: { ...spec, data: null },
      plan,
      mesh: buildMesh(plan),
      dataset: { path: TOKENS_PATH },
      steps: PLAN_STEPS,
      checkpoint: null,
      threadsPerRank,
    }),
    watchdog: null,
  };
  const sequences = job.globalBatchTokens / job.sequenceLengthTokens;
  return {
    id,
    kind: "plan",
    what: `${planLabel(plan)}: ${PLAN_STEPS} steps, beside the planner's prediction`,
    // The first step chooses algorithms and loads kernels: it takes as long as two.
    plannedSeconds: Math.ceil(START_SECONDS + WEIGHTS_SECONDS + (PLAN_STEPS + 1) * predicted.stepTimeSeconds),
    spec: job,
    plan,
    label: planLabel(plan),
    predicted: {
      profile,
      stepTimeSeconds: predicted.stepTimeSeconds,
      peakMemoryBytes: predicted.peakMemoryBytes,
    },
    config,
    tokens: {
      count: PLAN_STEPS * sequences * job.sequenceLengthTokens + 1,
      vocabularySize: job.model.vocabularySize,
    },
  };
}
