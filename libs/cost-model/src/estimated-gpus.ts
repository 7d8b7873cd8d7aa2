import { Type, type Static } from "typebox";
import { validate } from "@internevo/domain";
import document from "../gpus/gpus.json" with { type: "json" };

/*
 * What is published of GPUs that people have and nobody measured here, each figure with where it is from, or
 * why it is assumed, and how far off it may be. Profiles are estimated from it (`estimated-profile.ts`).
 */

const closed = { additionalProperties: false } as const;
const common = {
  value: Type.Number({ exclusiveMinimum: 0 }),
  uncertaintyPercent: Type.Number({
    minimum: 0,
    maximum: 100,
    description: "the true figure may be so much more, or less by the same factor",
  }),
};
const SourcedSchema = Type.Object(
  { ...common, source: Type.String(), note: Type.Optional(Type.String()) },
  closed,
);
const AssumedSchema = Type.Object({ ...common, assumed: Type.String({ minLength: 10 }) }, closed);
const FigureSchema = Type.Union([SourcedSchema, AssumedSchema]);
/** One figure: from a source, or assumed. */
export type Figure = Static<typeof FigureSchema>;

/** Of one GPU and the node that it is in. Bandwidths are of one direction. */
const FIGURES = {
  peakBf16FlopsPerSecond: "Dense peak of bf16 products",
  peakFp32FlopsPerSecond: "Peak of fp32",
  memoryBytes: "Memory",
  memoryBandwidthBytesPerSecond: "Bandwidth of the memory",
  linkBytesPerSecond: "Links to the other GPUs of the node together",
  hostLinkBytesPerSecond: "Link to the host",
  gpusPerNode: "GPUs of a node",
  networkBytesPerSecond: "Network of one GPU",
  productEfficiency: "Share of the peak that long products reach",
  attentionForwardEfficiency: "Share of the peak that long attention reaches, forward",
  attentionBackwardEfficiency: "Share of the peak that long attention reaches, backward",
  linkEfficiency: "Share of the links that collectives reach",
} as const;
export type FigureName = keyof typeof FIGURES;
export const FIGURE_WORDS: Readonly<Record<FigureName, string>> = FIGURES;

const ASSUMPTIONS = {
  usableMemoryShare: "Share of the memory that a process can have",
  runtimeBytes: "Memory of a rank before its plan",
  kernelSeconds: "Launch and tail of one kernel",
  memoryEfficiency: "Share of the memory's bandwidth that kernels reach",
  attentionHalfTokens: "Length at which attention reaches half of its rate",
  networkEfficiency: "Share of the network that collectives reach",
  linkLatencySeconds: "Latency of a collective inside a node",
  networkLatencySeconds: "Latency of a collective between nodes",
  overlapSlowdown: "Slow-down of computation and communication beside each other",
  hostCopyEfficiency: "Share of the link to the host that copies reach",
} as const;
export type AssumptionName = keyof typeof ASSUMPTIONS;
export const ASSUMPTION_WORDS: Readonly<Record<AssumptionName, string>> = ASSUMPTIONS;

const figuresSchema = <Name extends string>(names: Readonly<Record<Name, string>>) =>
  Type.Unsafe<Readonly<Record<Name, Figure>>>(
    Type.Object(Object.fromEntries(Object.keys(names).map((name) => [name, FigureSchema])), closed),
  );

const GpuSchema = Type.Object(
  {
    name: Type.String(),
    nodeTopology: Type.Enum(["switch", "mesh", "host"], {
      description:
        "switch: any pair has all links; mesh: each pair has its own; host: messages go through the host's bridges",
    }),
    figures: figuresSchema(FIGURES),
  },
  closed,
);
export type EstimatedGpu = Static<typeof GpuSchema>;

const GpusSchema = Type.Object(
  {
    sources: Type.Record(Type.String(), Type.Object({ title: Type.String(), url: Type.String() }, closed)),
    assumptions: figuresSchema(ASSUMPTIONS),
    gpus: Type.Record(Type.String(), GpuSchema),
  },
  closed,
);

const { gpus, assumptions, sources } = validate(GpusSchema, document, "internal", "gpus.json");

/** By the names that `estimated:NAME` has. */
export const GPUS: Readonly<Record<string, EstimatedGpu>> = gpus;
export const GPU_NAMES: readonly string[] = Object.keys(gpus);
/** What holds for all GPUs alike. */
export const ASSUMED: Readonly<Record<AssumptionName, Figure>> = assumptions;
/** Documents that figures are from. */
export const SOURCES: Readonly<Record<string, { readonly title: string; readonly url: string }>> = sources;

/** Bytes of a GPU's memory that a process can have: what a job may plan with. */
export const usableBytes = ({ figures }: EstimatedGpu): number =>
  Math.floor(figures.memoryBytes.value * ASSUMED.usableMemoryShare.value);
