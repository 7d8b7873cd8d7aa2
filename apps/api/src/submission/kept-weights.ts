import type { Removal } from "@internevo/contracts";
import { ProblemError, removalWords, WEIGHTS_KINDS } from "@internevo/domain";
import { findRemoval, holdBackRemovals, type Queryable, type Transaction } from "@internevo/store";
import { WEIGHTS_FIELD } from "@internevo/data";

/** Weights among a job's own files, as they were found. */
export interface WeightsOfJob {
  readonly path: string;
  /** The id of the job. */
  readonly owner: string;
  /** When retention took files of that kind last, before they were found there; null: never. */
  readonly removedAt: string | null;
}

export const removedWeights = (path: string, removal: Removal): ProblemError =>
  new ProblemError("data-invalid", `${path} was ${removalWords(removal)}`, [
    {
      field: WEIGHTS_FIELD,
      value: path,
      message: `was ${removalWords(removal)}`,
      remedy:
        "give other weights, or leave initialWeights out to begin with drawn ones; `internevo retention keep` exempts a job whose checkpoints others are to begin with",
    },
  ]);

/** The newest removal of what a path may have been part of. */
export function removalOfWeights(db: Queryable, owner: string, path: string): Promise<Removal | undefined> {
  const named = WEIGHTS_KINDS.filter((kind) => path.split("/").includes(kind));
  return findRemoval(db, owner, named.length > 0 ? named : WEIGHTS_KINDS);
}

/**
 * Makes sure that weights are still there when a job is stored which begins with them; from then on retention leaves
 * them. @throws ProblemError `data-invalid` where they were taken since they were found
 */
export async function assertStillKept(tx: Transaction, weights: WeightsOfJob | undefined): Promise<void> {
  if (!weights) return;
  const { path, owner, removedAt } = weights;
  await holdBackRemovals(tx, owner);
  const removal = await removalOfWeights(tx, owner, path);
  if (removal && removal.at !== removedAt) throw removedWeights(path, removal);
}
