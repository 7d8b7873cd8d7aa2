import { formatCounted, formatInteger, type CollectiveCurve, type ModuleShape } from "@internevo/domain";

export const OP_WORDS: Readonly<Record<CollectiveCurve["op"], string>> = {
  "all-reduce": "All-reduce",
  "all-gather": "All-gather",
  "reduce-scatter": "Reduce-scatter",
  "all-to-all": "All-to-all",
  broadcast: "Broadcast",
  "point-to-point": "Point to point",
};

export const PLACEMENT_WORDS: Readonly<Record<CollectiveCurve["placement"], string>> = {
  "intra-node": "within a node",
  "inter-node": "between nodes",
  mixed: "mixed",
};

export interface CurvePoint {
  readonly curve: string;
  readonly bytes: number;
  readonly seconds: number;
  readonly lowSeconds: number | undefined;
  readonly highSeconds: number | undefined;
  readonly bandwidth: number;
}

export const curveName = (curve: CollectiveCurve): string =>
  `${formatCounted(curve.groupSize, "rank")}, ${PLACEMENT_WORDS[curve.placement]}`;

/** Points of all curves of one operation; the bandwidth is the tensor's bytes over the time. */
export const pointsOf = (curves: readonly CollectiveCurve[], op: CollectiveCurve["op"]): CurvePoint[] =>
  curves
    .filter((curve) => curve.op === op)
    .sort((a, b) => a.groupSize - b.groupSize || a.placement.localeCompare(b.placement))
    .flatMap((curve) =>
      [...curve.points]
        .sort((a, b) => a.bytes - b.bytes)
        .map(({ bytes, medianSeconds, p10Seconds, p90Seconds }) => ({
          curve: curveName(curve),
          bytes,
          seconds: medianSeconds,
          lowSeconds: p10Seconds,
          highSeconds: p90Seconds,
          bandwidth: bytes / medianSeconds,
        })),
    );

/** The sizes of a module in words, without its name, pass and precision. */
export const shapeWords = (shape: ModuleShape): string =>
  Object.entries(shape)
    .filter(([key]) => key !== "module" && key !== "pass" && key !== "precision")
    .map(
      ([key, value]) =>
        `${key.replace(/([A-Z])/g, " $1").toLowerCase()} ${typeof value === "number" ? formatInteger(value) : String(value)}`,
    )
    .join(", ");

/** Floating-point operations of a matrix product; other modules are not bound by arithmetic. */
export const linearFlops = (shape: ModuleShape): number | undefined =>
  shape.module === "linear"
    ? 2 * shape.rows * shape.inputs * shape.outputs * (shape.pass === "backward" ? 2 : 1)
    : undefined;
