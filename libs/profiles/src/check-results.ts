// The lines of JSON that gpu-check leaves: one for each run of the check, and one for each case.
/** Any value of JSON. */
export type Value =
  string | number | boolean | null | undefined | readonly Value[] | { readonly [name: string]: Value };
export type Fields = Readonly<Record<string, Value>>;

/** A line of a file of results. `seconds` is the case's own; `gpu` what NVML said while it ran. */
export interface CaseLine {
  /** The file of results that it is in. */
  readonly file: string;
  readonly case: string;
  readonly command: string;
  readonly what: string;
  readonly outcome: string;
  readonly message: string;
  readonly seconds: number | undefined;
  readonly plannedSeconds: number;
  readonly at: string;
  readonly result: Fields;
  readonly versions: Fields;
  readonly gpu: Fields;
}

export interface RunLine {
  readonly at: string;
  readonly device: string;
  readonly build: string;
  readonly small: boolean;
  readonly commandLine: string;
  readonly versions: Fields;
  readonly gpu: Fields;
}

export interface CheckResults {
  readonly runs: readonly RunLine[];
  /** The last line of each case. */
  readonly cases: readonly CaseLine[];
}

export const fieldsOf = (value: Value): Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
export const listOf = (value: Value): readonly Fields[] =>
  Array.isArray(value) ? (value as readonly Value[]).map(fieldsOf) : [];
export const textOf = (value: Value): string =>
  typeof value === "string" || typeof value === "number" ? String(value) : "";
export const numberOf = (value: Value): number | undefined => (typeof value === "number" ? value : undefined);

/**
 * Reads the text of files of results, in the order in which they were made; a line that was cut off by a
 * node's end is passed over.
 * @throws Error where results are of different builds or devices, or there are none.
 */
export function readCheckResults(
  files: readonly { readonly name: string; readonly text: string }[],
): CheckResults {
  const runs: RunLine[] = [];
  const cases = new Map<string, CaseLine>();
  for (const { name, text } of files) {
    for (const line of text.split("\n")) {
      let fields: Fields;
      try {
        fields = fieldsOf(JSON.parse(line) as Value);
      } catch {
        continue;
      }
      if (fields["event"] === "run") {
        const identity = fieldsOf(fields["identity"]);
        const run: RunLine = {
          at: textOf(fields["at"]),
          device: textOf(identity["device"]),
          build: textOf(identity["build"]),
          small: identity["small"] === true,
          commandLine: textOf(fields["commandLine"]),
          versions: fieldsOf(fields["versions"]),
          gpu: fieldsOf(fields["gpu"]),
        };
        const [first] = runs;
        if (first && (first.device !== run.device || first.build !== run.build)) {
          throw new Error(
            `${name} is of ${run.device}, build ${run.build}; the files before it are of ` +
              `${first.device}, build ${first.build}: give files of one build and one GPU`,
          );
        }
        runs.push(run);
      } else if (fields["event"] === "case") {
        const id = textOf(fields["case"]);
        cases.set(id, {
          file: name,
          case: id,
          command: textOf(fields["command"]),
          what: textOf(fields["what"]),
          outcome: textOf(fields["outcome"]),
          message: textOf(fields["message"]),
          seconds: numberOf(fields["seconds"]),
          plannedSeconds: numberOf(fields["plannedSeconds"]) ?? 0,
          at: textOf(fields["at"]),
          result: fieldsOf(fields["result"]),
          versions: fieldsOf(fields["versions"]),
          gpu: fieldsOf(fields["gpu"]),
        });
      }
    }
  }
  if (runs.length === 0 || cases.size === 0)
    throw new Error(
      `no results in ${files.map(({ name }) => name).join(", ")}: give files that gpu-check wrote with --out`,
    );
  return { runs, cases: [...cases.values()] };
}
