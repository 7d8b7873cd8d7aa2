import type { Plan } from "./plan.ts";
import { ProblemError } from "./problem.ts";

const NUMBERS: Readonly<Record<string, keyof Plan>> = {
  b: "microBatchSize",
  n: "microBatches",
  pp: "pipelineParallel",
  dp: "dataParallel",
  tp: "tensorParallel",
  sp: "sequenceParallel",
  cp: "contextParallel",
  ps: "parameterSharding",
  gs: "gradientSharding",
  oss: "optimizerStateSharding",
  v: "pipelineChunks",
  k: "recomputeLayers",
};

/** What a label may leave out, because plans do. */
const DEFAULTS: Partial<Plan> = { tensorParallel: 1, gradientSharding: 1, optimizerStateSharding: 1, recompute: false, forwardOverlap: "none", backwardOverlap: "none" };

/** Whether a text is meant as a plan's label and not, say, as a file's name. */
export const looksLikePlanLabel = (text: string): boolean => /^\s*(?:[a-z]+\d+|ov[a-z-]+\/[a-z-]+)(?:\s+(?:[a-z]+\d+|ov[a-z-]+\/[a-z-]+))+\s*$/.test(text);

function fault(text: string, message: string): ProblemError {
  return new ProblemError("plan-invalid", `"${text}" is no plan: ${message}`, [{ field: "plan", value: text, message, remedy: `write a plan as tables show it, e.g. "b1 n4 a0 pp1 dp2 tp1 sp4 ps8 gs1 oss1 ovinter-layer/intra-layer"` }]);
}

/**
 * Reads a plan as tables and logs write it (`planLabel`), in any order of its parts.
 * @throws ProblemError `plan-invalid` that names the part.
 */
export function parsePlanLabel(text: string): Plan {
  const fields = new Map<keyof Plan, unknown>(Object.entries(DEFAULTS) as [keyof Plan, unknown][]);
  const seen = new Set<string>();
  for (const part of text.trim().split(/\s+/)) {
    const overlap = /^ov(none|block|inter-layer|intra-layer)\/(none|block|intra-layer)$/.exec(part);
    const [, name, digits] = /^([a-z]+)(\d+)$/.exec(part) ?? [];
    const key = overlap ? "ov" : (name ?? "");
    if (seen.has(key)) throw fault(text, `${part} is the second of its kind`);
    seen.add(key);
    if (overlap) {
      fields.set("forwardOverlap", overlap[1]);
      fields.set("backwardOverlap", overlap[2]);
    } else if (name === "a" && (digits === "0" || digits === "1")) {
      fields.set("recompute", digits === "1");
    } else {
      const field = name === undefined ? undefined : NUMBERS[name];
      const value = Number(digits);
      if (field === undefined || !Number.isSafeInteger(value) || value > 2 ** 31 - 1 || (value < 1 && name !== "k")) throw fault(text, `${part} is not known`);
      fields.set(field, value);
    }
  }
  for (const [name, field] of Object.entries(NUMBERS)) {
    if (!fields.has(field) && !["cp", "v", "k"].includes(name)) throw fault(text, `${name} (${field}) is missing`);
  }
  const plan = Object.fromEntries(fields) as unknown as Plan;
  // Of what is left out by default, nothing is written down, so that equal plans are equal values.
  const { contextParallel, pipelineChunks, recomputeLayers, ...rest } = plan;
  return {
    ...rest,
    ...(contextParallel === undefined || contextParallel === 1 ? {} : { contextParallel }),
    ...(pipelineChunks === undefined || pipelineChunks === 1 ? {} : { pipelineChunks }),
    ...(recomputeLayers === undefined || recomputeLayers === 0 ? {} : { recomputeLayers }),
  };
}
