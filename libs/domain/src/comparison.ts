import { formatInteger, formatPercent, formatRate } from "./figures.ts";
import { formatBytes, formatSeconds } from "./units.ts";

/** A field in which documents differ, with the value of each; null where one does not have it. */
export interface DifferingField {
  readonly field: string;
  readonly values: unknown[];
}

/** The fields of a document that hold no fields themselves, by their paths. */
function leavesOf(value: unknown, path = "", found = new Map<string, unknown>()): Map<string, unknown> {
  if (typeof value === "object" && value !== null && !Array.isArray(value))
    for (const [name, inner] of Object.entries(value))
      leavesOf(inner, path === "" ? name : `${path}.${name}`, found);
  else if (value !== undefined && value !== null) found.set(path, value);
  return found;
}

/** What differs between documents, in the order in which they say it. A list is one value. */
export function differingFields(documents: readonly (object | null)[]): DifferingField[] {
  const leaves = documents.map((document) => leavesOf(document));
  const fields = [...new Set(leaves.flatMap((each) => [...each.keys()]))];
  return fields
    .map((field) => ({ field, values: leaves.map((each) => each.get(field) ?? null) }))
    .filter(({ values }) => new Set(values.map((value) => JSON.stringify(value))).size > 1);
}

const nats = (value: number): string => `${value.toFixed(4)} nats`;
const rate = (value: number): string => `${formatRate(value)} tokens/s`;

/** Figures by which trainings are compared, as people read them. */
export const RUN_FIGURES = {
  steps: { name: "Steps", format: formatInteger },
  stepTimeSeconds: { name: "Step time", format: formatSeconds },
  tokensPerGpuPerSecond: { name: "Throughput a rank", format: rate },
  mfu: { name: "MFU, causal", format: (value: number) => formatPercent(value) },
  peakMemoryBytes: { name: "Peak memory", format: formatBytes },
  lossNats: { name: "Loss at the end", format: nats },
  validationLossNats: { name: "Validation loss", format: nats },
} as const satisfies Readonly<
  Record<string, { readonly name: string; readonly format: (value: number) => string }>
>;
export type RunFigure = keyof typeof RUN_FIGURES;
export const RUN_FIGURE_NAMES = Object.keys(RUN_FIGURES) as readonly RunFigure[];

/** A value of a compared field, as people read it. */
export function comparedValue(value: unknown): string {
  if (value === null) return "–";
  if (Array.isArray(value)) return value.map((one) => comparedValue(one)).join(", ");
  return typeof value === "string" ? value : JSON.stringify(value);
}
