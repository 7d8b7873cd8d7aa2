import { ProblemError } from "@internevo/domain";
import { programCommand } from "./command-line.ts";
import type { Framework } from "./framework.ts";
import { Faults } from "./problems.ts";

/** The program that reads the arguments of a Megatron-LM or Megatron-DeepSpeed script. */
export const PRETRAIN_PROGRAM = /(?:^|\/)pretrain_\w+\.py$/;

const DEEPSPEED_JSON = "--deepspeed_config";

/** What a script's command gives --deepspeed_config; null where it gives nothing, or cannot be read. */
function deepspeedJson(script: string): string | null {
  try {
    const words = programCommand(script, PRETRAIN_PROGRAM, new Faults("the script"));
    const at = words.findIndex((word) => word === DEEPSPEED_JSON || word.startsWith(`${DEEPSPEED_JSON}=`));
    const word = words[at];
    if (word === undefined) return null;
    return word === DEEPSPEED_JSON ? (words[at + 1] ?? null) : word.slice(DEEPSPEED_JSON.length + 1);
  } catch (error) {
    // Whoever imports the script is told what is wrong with it.
    if (error instanceof ProblemError) return null;
    throw error;
  }
}

/**
 * The file that a configuration names beside itself: DeepSpeed's JSON, or the module with torchtitan's model.
 * @returns null where it names none
 */
export function companionName(framework: Framework, text: string): string | null {
  if (framework === "deepspeed") return deepspeedJson(text);
  if (framework !== "torchtitan") return null;
  const module = /^\s*custom_import\s*=\s*["']([\w.]+)["']/m.exec(text)?.[1];
  return module === undefined ? null : `${module.replaceAll(".", "/")}.py`;
}
