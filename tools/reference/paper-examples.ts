// Writes the paper's jobs to examples/paper: `node tools/reference/paper-examples.ts`.
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const PAPER_MODELS = ["7b", "13b", "30b", "65b"] as const;
export const PAPER_SEQUENCES_K = [4, 8, 16, 32, 64, 128, 256] as const;
export const EXAMPLES_DIRECTORY = fileURLToPath(new URL("../../examples/paper/", import.meta.url));
const STEP_TOKENS = 4 * 1024 * 1024;

export const exampleName = (model: string, sequenceK: number): string => `${model}-${sequenceK}k.yaml`;

/** One job of the paper's end-to-end evaluation: its testbed, its 4M tokens a step, its precision. */
export function exampleText(model: string, sequenceK: number): string {
  return `# LLaMA ${model.toUpperCase()} at ${sequenceK}K tokens as in the paper's end-to-end evaluation: 16 nodes of 8 A100-80GB, 4M tokens a step.
# Written by tools/reference/paper-examples.ts. Plan it offline: npx internevo plan examples/paper/${exampleName(model, sequenceK)}
name: paper-${model}-${sequenceK}k
model: llama-${model}
sequenceLengthTokens: ${sequenceK * 1024}
globalBatchTokens: ${STEP_TOKENS}
precision: bf16-grad16
cluster:
  name: a100-128
  nodes: 16
  gpusPerNode: 8
  memoryPerGpu: 80GB
  launcher: slurm
  profile: a800-128
`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  mkdirSync(EXAMPLES_DIRECTORY, { recursive: true });
  for (const model of PAPER_MODELS)
    for (const sequenceK of PAPER_SEQUENCES_K)
      writeFileSync(EXAMPLES_DIRECTORY + exampleName(model, sequenceK), exampleText(model, sequenceK));
}
