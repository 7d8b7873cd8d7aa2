import { formatBytes, formatCounted, formatInteger, planLabel, type Plan } from "@internevo/domain";
import { table, type Colors } from "./output.ts";

/** What `internevo-checkpoint` says of checkpoints, and what people read of it. */

interface CheckpointSummary {
  readonly path: string;
  readonly step: number;
  readonly dataPosition: number;
  readonly parameters: number;
  readonly bytes: number;
  readonly fileCount: number;
  readonly precision: string;
  readonly plan: SavedPlan | null;
  readonly holds: readonly string[];
  /** Only of one that cannot be read: then the other members are absent. */
  readonly problem?: string;
}

export type Inspection =
  | { readonly kind: "directory"; readonly path: string; readonly checkpoints: readonly CheckpointSummary[] }
  | {
      readonly kind: "huggingFace";
      readonly path: string;
      readonly model: Readonly<Record<string, unknown>>;
      readonly parameters: number;
      readonly fileCount: number;
    }
  | (CheckpointSummary & {
      readonly kind: "checkpoint";
      readonly files: readonly {
        readonly name: string;
        readonly bytes: number;
        readonly slices: number;
        readonly elements: number;
      }[];
      readonly tensors: readonly {
        readonly name: string;
        readonly shape: readonly number[];
        readonly elements: number;
        readonly slices: number;
      }[];
    });

export interface Verification {
  readonly ok: boolean;
  readonly checkpoints: readonly {
    readonly path: string;
    readonly step?: number;
    readonly bytes?: number;
    readonly fileCount?: number;
    readonly ok: boolean;
    readonly problems: readonly { readonly file: string; readonly message: string }[];
  }[];
}

export interface Written {
  readonly path: string;
  readonly from: string;
  readonly bytes: number;
  readonly parameters: number;
  readonly fileCount?: number;
}

const NONE = "–";
/** A manifest's plan says nothing of overlap: it has no bearing on what is saved. */
type SavedPlan = Omit<Plan, "forwardOverlap" | "backwardOverlap">;
const planText = (plan: SavedPlan | null): string =>
  plan === null ? NONE : planLabel({ ...plan, forwardOverlap: "none", backwardOverlap: "none" });

/** A field of a model; what scales its positions is a document. */
function modelValue(value: unknown): string {
  if (typeof value === "number" && Number.isInteger(value)) return formatInteger(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function inspectionText(found: Inspection, colors: Colors): string {
  if (found.kind === "huggingFace") {
    const lines = Object.entries(found.model).map(
      ([name, value]) => `${colors.bold(name.padEnd(24))} ${modelValue(value)}`,
    );
    return [
      `Hugging Face folder ${found.path}: ${formatCounted(found.parameters, "parameter")} ` +
        `in ${formatCounted(found.fileCount, "file")}`,
      ...lines,
    ].join("\n");
  }
  if (found.kind === "directory") {
    return table<CheckpointSummary>(
      [
        {
          title: "STEP",
          align: "right",
          value: (each) => (each.problem === undefined ? formatInteger(each.step) : NONE),
        },
        {
          title: "PLAN",
          value: (each) => (each.problem === undefined ? planText(each.plan) : colors.red(each.problem)),
        },
        { title: "PRECISION", value: (each) => each.precision ?? NONE },
        {
          title: "FILES",
          align: "right",
          value: (each) => (each.fileCount === undefined ? NONE : formatInteger(each.fileCount)),
        },
        {
          title: "BYTES",
          align: "right",
          value: (each) => (each.bytes === undefined ? NONE : formatBytes(each.bytes)),
        },
        { title: "PATH", value: (each) => each.path },
      ],
      found.checkpoints,
      colors,
    );
  }
  const head = [
    `${colors.bold("checkpoint")}    ${found.path}`,
    `${colors.bold("step")}          ${formatInteger(found.step)}, ${formatCounted(found.dataPosition, "sequence")} read`,
    `${colors.bold("saved under")}   ${planText(found.plan)}, ${found.precision}`,
    `${colors.bold("holds")}         ${found.holds.join(", ")} of ` +
      `${formatCounted(found.parameters, "parameter")}, ${formatBytes(found.bytes)}`,
    "",
  ];
  const files = table(
    [
      { title: "FILE", value: (file) => file.name },
      { title: "BYTES", align: "right", value: (file) => formatBytes(file.bytes) },
      { title: "SLICES", align: "right", value: (file) => formatInteger(file.slices) },
      { title: "ELEMENTS", align: "right", value: (file) => formatInteger(file.elements) },
    ],
    found.files,
    colors,
  );
  const tensors = table(
    [
      { title: "TENSOR", value: (tensor) => tensor.name },
      { title: "SHAPE", value: (tensor) => tensor.shape.map(formatInteger).join(" × ") },
      { title: "SLICES", align: "right", value: (tensor) => formatInteger(tensor.slices) },
    ],
    found.tensors,
    colors,
  );
  return [...head, files, "", tensors].join("\n");
}

export function verificationText(found: Verification, colors: Colors): string {
  const lines: string[] = [];
  for (const each of found.checkpoints) {
    lines.push(
      `${each.ok ? colors.green("sound") : colors.red("damaged")}  ${each.path}${each.bytes === undefined ? "" : `: ${formatCounted(each.fileCount ?? 0, "file")}, ${formatBytes(each.bytes)}`}`,
    );
    for (const problem of each.problems) lines.push(`  ${problem.file}: ${problem.message}`);
  }
  return lines.join("\n");
}

/** @param what was done: "wrote" */
export const writtenText = (written: Written, what: string): string =>
  `${what} ${written.path}: ${formatCounted(written.parameters, "parameter")}, ${formatBytes(written.bytes)}${written.fileCount === undefined ? "" : ` in ${formatCounted(written.fileCount, "file")}`}, from ${written.from}`;
