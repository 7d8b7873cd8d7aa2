import { isAtRest } from "@internevo/domain";
import type { JobStand } from "@internevo/store";

/** Which of a job's checkpoints belong to a snapshot. */
export interface CheckpointChoice {
  /** Ascending. */
  readonly kept: readonly number[];
  /** What the snapshot knows of, or training would go on from, and is not there; ascending. */
  readonly missing: readonly number[];
}

/** The newest checkpoint that a snapshot knows of; 0: none. */
export const announcedStep = ({ attempt, announcedStep: step, resumedFromStep }: JobStand): number =>
  attempt === null ? 0 : (step ?? resumedFromStep);

/**
 * Where training would go on, whose steps must all be stored: a checkpoint may be announced before its last
 * steps are.
 */
function goesOnFrom(stand: JobStand): number {
  const announced = announcedStep(stand);
  const { state, everySteps, storedSteps, resumedFromStep } = stand;
  if (isAtRest(state) || everySteps === null || storedSteps >= announced) return announced;
  return Math.max(resumedFromStep, storedSteps - (storedSteps % everySteps));
}

/**
 * Chooses checkpoints so that files and snapshot are of one moment: those that the snapshot knows of.
 * @param held steps of the complete ones that are held fast, in any order.
 * @param there those of them that the job has now; others are taken only where they are needed.
 */
export function chooseCheckpoints(
  stand: JobStand,
  held: readonly number[],
  there: readonly number[] = held,
): CheckpointChoice {
  const announced = announcedStep(stand);
  const needed = [...new Set([goesOnFrom(stand), announced])].filter((step) => step > 0);
  const kept = held
    .filter((step) => step <= announced && (there.includes(step) || needed.includes(step)))
    .sort((a, b) => a - b);
  return { kept, missing: needed.filter((step) => !kept.includes(step)).sort((a, b) => a - b) };
}

/** So often in a row the same checkpoint is missing, of a job at work, until it counts as lost before. */
const SIGHTINGS = 3;

/** Tells checkpoints that were lost before a backup from those that gave way to newer ones while it looked. */
export class Missing {
  readonly #sightings = new Map<string, number>();

  /**
   * Looks at what is missing of a newer snapshot.
   * @returns for each job what is lost, and what another snapshot may find.
   */
  look(all: readonly { readonly stand: JobStand; readonly missing: readonly number[] }[]): {
    readonly lost: readonly { readonly jobId: string; readonly step: number }[];
    readonly open: readonly { readonly jobId: string; readonly step: number }[];
  } {
    const seen = all.flatMap(({ stand, missing }) => missing.map((step) => ({ stand, step })));
    const keyOf = ({ stand, step }: (typeof seen)[number]): string => `${stand.jobId} ${step}`;
    const now = new Set(seen.map(keyOf));
    for (const key of this.#sightings.keys()) if (!now.has(key)) this.#sightings.delete(key);
    for (const key of now) this.#sightings.set(key, (this.#sightings.get(key) ?? 0) + 1);
    const isLost = (one: (typeof seen)[number]): boolean =>
      isAtRest(one.stand.state) || (this.#sightings.get(keyOf(one)) ?? 0) >= SIGHTINGS;
    const named = ({ stand, step }: (typeof seen)[number]) => ({ jobId: stand.jobId, step });
    return { lost: seen.filter(isLost).map(named), open: seen.filter((one) => !isLost(one)).map(named) };
  }
}
