// What is written in docs as code: commands of internevo, and job files.
import { LineCounter, parseDocument } from "yaml";
import type { Context } from "../../apps/cli/src/context.ts";
import { commandLine } from "../../apps/cli/src/run.ts";
import { ProblemError, resolveJob } from "../../libs/domain/src/index.ts";

type Command = ReturnType<typeof commandLine>;

let known: Command | undefined;
/** The CLI's own command tree. Nothing of it runs. */
function program(): Command {
  const streams = { stdout: process.stdout, stderr: process.stderr, env: {} };
  known ??= commandLine(streams, false, {} as Context);
  return known;
}

/** Where `internevo` is called: at the beginning, behind variables or npx, behind a pipe or `--`. */
const CALL = /(?:^\s*(?:[A-Z_]+=\S*\s+)*|\bnpx\s+|[|;&(]\s*|\s--\s+)internevo(?=\s)/g;
const WORD = /(?:"[^"]*"|'[^']*'|[^\s"'|;&<>])+|[|;&<>]/g;

/** The words behind `internevo`, up to a pipe, a redirection or a remark. */
function wordsBehind(text: string): string[] {
  const words: string[] = [];
  for (const [word] of text.matchAll(WORD)) {
    if (/^[|;&<>#]/.test(word)) break;
    // Brackets are around what may be left out.
    const bare = word.replace(/^\[+|[\],]+$/g, "");
    if (bare !== "" && !/^(?:…|\.\.\.)$/.test(bare)) words.push(bare);
  }
  return words;
}

const fullName = (command: Command): string =>
  command.parent === null ? command.name() : `${fullName(command.parent)} ${command.name()}`;

/** An option of a command, or of those that it belongs to. */
function optionOf(command: Command, flag: string): Command["options"][number] | undefined {
  for (let each: Command | null = command; each !== null; each = each.parent) {
    const found = each.options.find(({ long, short }) => long === flag || short === flag);
    if (found) return found;
  }
  return undefined;
}

function faultOfCall(words: readonly string[]): string | undefined {
  let command = program();
  let isOperand = false;
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at] ?? "";
    if (word === "--") return undefined;
    if (/^-./.test(word)) {
      const [flag = "", value] = word.split("=", 2);
      if (flag === "--help" || flag === "-h") continue;
      const option = optionOf(command, flag);
      if (!option)
        return `${fullName(command)} has no option ${flag}: ${fullName(command)} --help has its options`;
      if (option.required && value === undefined) at += 1;
      continue;
    }
    const next: Command | undefined = command.commands.find(
      (each) => each.name() === word || each.aliases().includes(word),
    );
    if (next && !isOperand) command = next;
    else if (command.commands.length > 0 && command.registeredArguments.length === 0 && !isOperand)
      return `${fullName(command)} ${word} is no command: ${fullName(command)} --help has their names`;
    else isOperand = true;
  }
  return undefined;
}

/** Commands and options in one line of shell that the CLI lacks. */
export const wrongCalls = (line: string): string[] =>
  [...line.matchAll(CALL)].flatMap(
    (call) => faultOfCall(wordsBehind(line.slice(call.index + call[0].length))) ?? [],
  );

const SHELLS: readonly (string | null | undefined)[] = ["console", "sh", "bash", "shell", null, undefined];

/** The same for a block of code, each with the line of the block. In a console, output is no command. */
export function wrongCallsOfBlock(lang: string | null | undefined, value: string): [number, string][] {
  if (!SHELLS.includes(lang)) return [];
  const faults: [number, string][] = [];
  let start = 0;
  let whole = "";
  for (const [index, line] of value.split("\n").entries()) {
    if (whole === "") start = index;
    whole += line.replace(/\\$/, " ");
    if (line.endsWith("\\")) continue;
    const command = lang === "console" && !whole.startsWith("$ ") ? "" : whole.replace(/^\$ /, "");
    faults.push(...wrongCalls(command).map((fault): [number, string] => [start, fault]));
    whole = "";
  }
  return faults;
}

/** What is wrong with YAML that is a whole job, each with the line of the block. Parts of jobs pass. */
export function wrongJob(value: string): [number, string][] {
  const lines = new LineCounter();
  const document = parseDocument(value, { lineCounter: lines });
  const job: unknown = document.errors.length > 0 ? null : document.toJS();
  if (typeof job !== "object" || job === null || !("model" in job) || !("cluster" in job)) return [];
  try {
    resolveJob(job);
    return [];
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    return error.details.map(({ field, message }) => {
      const key = field.split(/[.[]/)[0] ?? "";
      const offset = new RegExp(`^${key}\\b`, "m").exec(value)?.index ?? 0;
      return [lines.linePos(offset).line - 1, `no job file: ${field} ${message}`];
    });
  }
}
