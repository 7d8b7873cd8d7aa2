import type { Launch } from "./framework.ts";
import type { Faults } from "./problems.ts";

/** What is asked for, else what the launcher's options say. */
export function ranksOf(
  asked: Launch | null,
  nodes: number | null,
  gpusPerNode: number | null,
  faults: Faults,
): Launch {
  if (asked !== null) return asked;
  if (gpusPerNode === null)
    return faults.fail("(ranks)", null, "are not said in the file", "give --nodes and --gpus-per-node");
  return { nodes: nodes ?? 1, gpusPerNode };
}

/** As {@link ranksOf}, for files whose comments may say how they are launched. */
export function ranksInText(text: string, asked: Launch | null, faults: Faults): Launch {
  const number = (pattern: RegExp): number | null => {
    const [, digits] = pattern.exec(text) ?? [];
    return digits === undefined ? null : Number(digits);
  };
  return ranksOf(asked, number(/--nnodes[ =](\d+)/), number(/--nproc[-_]per[-_]node[ =](\d+)/), faults);
}
