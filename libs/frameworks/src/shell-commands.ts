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
  return null;
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
