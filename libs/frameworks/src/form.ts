import { isNestedDeeper, ProblemError } from "@internevo/domain";
import { visit } from "jsonc-parser";
import { parse } from "smol-toml";
import { MOST_DEPTH } from "./depth.ts";
import type { Framework, FrameworkFile } from "./framework.ts";

/** How a configuration file is written, where it is no program. */
type Form = "JSON" | "TOML" | "YAML";

/** Whether a text is one JSON object, comments allowed; nothing of it is kept, however deep it is. */
function isJsonObject(text: string): boolean {
  if (!text.trimStart().startsWith("{") || isNestedDeeper(text, MOST_DEPTH)) return false;
  let isWhole = true;
  visit(text, { onError: () => (isWhole = false) }, { allowTrailingComma: true });
  return isWhole;
}

/** A program can be TOML by chance where it only sets variables: a table is meant. */
function isToml(text: string): boolean {
  if (!/^[ \t]*\[[^\]\n]+\][ \t]*(#.*)?$/m.test(text)) return false;
  try {
    parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Every line is a key, or an item of a list. */
const isYaml = (text: string): boolean =>
  text
    .split("\n")
    .every((line) => /^\s*(#.*|---|)$/.test(line) || /^\s*(- .*|[\w.-]+:(\s.*)?)$/.test(line)) &&
  /^[\w.-]+:/m.test(text);

function formOf(text: string): Form | undefined {
  if (isJsonObject(text)) return "JSON";
  if (isToml(text)) return "TOML";
  return isYaml(text) ? "YAML" : undefined;
}

/** What each framework's configuration is, and the form that it is read in besides. */
const WANTED: Readonly<Record<Framework, { readonly remedy: string; readonly takes?: Form }>> = {
  internevo: { remedy: "give the Python file that training is started with" },
  megatron: { remedy: "give the script that starts training, with its options" },
  deepspeed: { remedy: "give the script that starts training, with its options" },
  torchtitan: { remedy: "give the job's TOML file", takes: "TOML" },
};

function remedyOf(framework: Framework, form: Form): string {
  if (framework === "deepspeed" && form === "JSON")
    return "give the script that starts training; it names this file with --deepspeed_config";
  const other = form === "TOML" ? "; a TOML file is read as framework torchtitan" : "";
  return `${WANTED[framework].remedy}${other}`;
}

/**
 * Refuses a file in the form of another framework: what its own reader would say of it helps nobody.
 * @throws ProblemError `bad-request`
 */
export function assertForm(framework: Framework, { name, text }: FrameworkFile): void {
  const form = formOf(text);
  if (form === undefined || form === WANTED[framework].takes) return;
  throw new ProblemError("bad-request", `${name} is ${form}, which no ${framework} training starts with`, [
    { field: "file", value: name, message: `is ${form}`, remedy: remedyOf(framework, form) },
  ]);
}
