import type { ImportedConfiguration, Launch } from "./framework.ts";
import type { Faults } from "./problems.ts";

/** The field that errors about the number of ranks name. */
export const RANKS_FIELD = "nodes × gpusPerNode";

type Ranks = Pick<ImportedConfiguration, "launch" | "launchOrigin">;

/** What is asked for, else what the launcher's options say. */
export function ranksOf(
  asked: Launch | null,
  nodes: number | null,
  gpusPerNode: number | null,
  faults: Faults,
): Ranks {
  const said = gpusPerNode === null ? null : { nodes: nodes ?? 1, gpusPerNode };
  const launch =
    asked ??
    said ??
    faults.fail(
      "nodes and gpusPerNode",
      null,
      "are not said in the file",
      "give nodes and gpusPerNode; on the command line --nodes and --gpus-per-node",
    );
  return { launch, launchOrigin: { isAsked: asked !== null, said } };
}

/** As {@link ranksOf}, for files whose comments may say how they are launched. */
export function ranksInText(text: string, asked: Launch | null, faults: Faults): Ranks {
  const number = (pattern: RegExp): number | null => {
    const [, digits] = pattern.exec(text) ?? [];
    return digits === undefined ? null : Number(digits);
  };
  return ranksOf(asked, number(/--nnodes[ =](\d+)/), number(/--nproc[-_]per[-_]node[ =](\d+)/), faults);
}
