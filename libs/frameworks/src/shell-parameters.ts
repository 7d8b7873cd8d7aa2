/**
 * What `$@`, `$1` and the like stand for: the words that the script set, what it is called with, or what is
 * not known.
 */
export type Parameters = readonly string[] | "caller's" | "unknown";

/** Whether a word holds a variable that is not known: it may be no word, or several. */
const isOpen = (word: string): boolean => word.includes("$");

/** What of `set`'s arguments are parameters; null where it leaves them as they are. */
function givenTo(rest: readonly string[]): readonly string[] | "unknown" | null {
  for (let at = 0; at < rest.length; at += 1) {
    const word = rest[at] as string;
    if (word === "--") return rest.slice(at + 1);
    if (word === "-") return at + 1 < rest.length ? rest.slice(at + 1) : null;
    if (!/^[-+]/.test(word)) return rest.slice(0, at + 1).some(isOpen) ? "unknown" : rest.slice(at);
    // The name of an option stands behind -o.
    if (word.includes("o")) at += 1;
  }
  return null;
}

export const parametersAfterSet = (parameters: Parameters, rest: readonly string[]): Parameters =>
  givenTo(rest) ?? parameters;

/** Those of the caller are taken as none, which none can be shifted from. */
export function parametersAfterShift(parameters: Parameters, rest: readonly string[]): Parameters {
  if (typeof parameters === "string") return parameters;
  const [count = "1"] = rest;
  if (!/^\d+$/.test(count) || parameters.slice(0, Number(count)).some(isOpen)) return "unknown";
  return Number(count) > parameters.length ? parameters : parameters.slice(Number(count));
}

/** The parameter of a number from 1; undefined where it is not known. */
export function parameterAt(parameters: Parameters, number: number): string | undefined {
  if (typeof parameters === "string") return undefined;
  // Behind a word that may be several, each has another number.
  if (parameters.slice(0, number).some(isOpen)) return undefined;
  return parameters[number - 1] ?? "";
}
