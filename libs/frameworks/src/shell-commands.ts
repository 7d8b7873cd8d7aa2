/** Commands that decide what runs or is set. */
const CONTROL: ReadonlySet<string> = new Set([
  "if",
  "for",
  "while",
  "until",
  "case",
  "select",
  "function",
  "coproc",
  "local",
  "readonly",
  "{",
  "}",
  "[[",
  "then",
  "else",
  "do",
  "done",
  "fi",
  "esac",
]);
/** Commands whose arguments are assignments. */
export const DECLARES: ReadonlySet<string> = new Set(["export", "declare", "typeset"]);
/** Commands that set the variables that they name, to what is not known here. */
const SETS: ReadonlySet<string> = new Set(["read", "let", "mapfile", "readarray", "getopts", "wait"]);
/** Commands that may set any variable. */
const SETS_ANY: ReadonlySet<string> = new Set(["eval", "source", "."]);
/** Words before a command that leave what it does as it is. */
export const PREFIXES: ReadonlySet<string> = new Set(["!", "time", "command", "builtin"]);
/** Commands behind which nothing of a script is run. */
const ENDS: ReadonlySet<string> = new Set(["exit", "return", "exec"]);
/** Settings with which a shell reads a script in another way than here. */
const REREADS: ReadonlySet<string> = new Set([
  "lastpipe",
  "expand_aliases",
  "posix",
  "keyword",
  "noexec",
  "onecmd",
]);

export const ASSIGNMENT = /^([A-Za-z_]\w*)(\+?)=/;

/** Why a command is refused whatever its variables are, and what to do; null where it is not. */
export function whyRefused(first: string, rest: readonly string[]): readonly [string, string] | null {
  if (CONTROL.has(first))
    return [
      `${first} decides what runs or is set, and nothing is run here`,
      "write the arguments without conditions, loops and functions",
    ];
  if (DECLARES.has(first) && rest.some((word) => /^-.*[^-xg]/.test(word)))
    return ["declares variables that are not understood", "assign them without options"];
  if (first === "alias" && rest.some((word) => /[=$]/.test(word)))
    return ["gives commands other names", "write the commands under their own names"];
  // It is run before every command.
  if (first === "trap" && rest.slice(1).some((signal) => /^(?:SIG)?DEBUG$|\$/i.test(signal)))
    return ["runs something before every command", "leave out what is run on DEBUG"];
  if ((first === "set" || first === "shopt") && changesReading(rest))
    return ["changes how the script is read", "write the arguments without it"];
  return null;
}

/** Whether the script ends here. Without a command, exec only says where output goes. */
export const endsScript = (first: string, rest: readonly string[]): boolean =>
  ENDS.has(first) && (first !== "exec" || rest.length > 0);

/** Whether settings begin with `-n`, `-t` or `-k`, or name one of those above. */
function changesReading(rest: readonly string[]): boolean {
  const end = rest.findIndex((word) => !/^[-+]./.test(word) || word === "--");
  const settings = rest.slice(0, end < 0 ? undefined : end);
  // Names stand behind -o.
  const named = rest.slice(0, settings.length + 2);
  return settings.some((word) => /^-\w*[ntk]/.test(word)) || named.some((word) => REREADS.has(word));
}

/** Variables that a command sets to what is not known here. */
export function setBy(first: string, rest: readonly string[]): readonly string[] | "any" {
  if (SETS_ANY.has(first)) return "any";
  const sets = SETS.has(first) || (first === "printf" && rest[0]?.startsWith("-v") === true);
  const isOpen = (word: string): boolean => word.includes("$");
  if (sets)
    return rest.some(isOpen) ? "any" : [...rest.join(" ").matchAll(/[A-Za-z_]\w*/g)].map(([name]) => name);
  if (first === "unset") return rest.some(isOpen) ? "any" : [];
  if (!DECLARES.has(first)) return [];
  // An argument that may be any name may be any assignment.
  if (rest.some((word) => isOpen(word) && !ASSIGNMENT.test(word))) return "any";
  return rest.flatMap((word) => /^(\w+)\[/.exec(word)?.[1] ?? []);
}
