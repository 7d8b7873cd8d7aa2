import { countedDocuments, type JobSpec, type PackedDocuments } from "@internevo/domain";

/** What packed documents leave of attention on the ranks that share a sequence, as parts of one document's. */
export interface PackedAttention {
  /** Of the rank that the others wait for, once a step or around a ring. */
  readonly share: number;
  /** Part of it that is in a ring's first turn: short documents end before the second. */
  readonly firstTurn?: number;
  /** The same as `share` where all ranks meet in every micro-batch. */
  readonly meetingShare: number;
}

/** One document a sequence. */
export const ONE_DOCUMENT: PackedAttention = { share: 1, meetingShare: 1 };

/**
 * Inverse of the standard normal distribution for p from 0.5 to 1 (Abramowitz and Stegun, 26.2.23; its error is
 * below 4.5e-4).
 */
function normalQuantile(p: number): number {
  const t = Math.sqrt(-2 * Math.log(1 - p));
  const above = 2.515517 + t * (0.802853 + t * 0.010328);
  return t - above / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

/** The largest of so many standard normal variables, on average (Blom's approximation); 0 for one. */
export const expectedLargest = (count: number): number =>
  count <= 1 ? 0 : normalQuantile((count - 0.375) / (count + 0.25));

type Ring = PackedDocuments["rings"][number];

/** Work of the slowest of some ranks, when each has the sum of so many sequences; never more than was seen. */
const slowest = ({ work, deviation, most }: Ring, ranks: number, sequences: number): number =>
  Math.min(most, work + (deviation / Math.sqrt(sequences)) * expectedLargest(ranks));

/** How the sequences of a step are shared out. */
export interface SequenceShares {
  /** Ranks of a ring. */
  readonly ring: number;
  readonly microBatchSize: number;
  readonly dataParallel: number;
}

type PackedJob = Pick<JobSpec, "documents" | "data" | "model" | "sequenceLengthTokens" | "globalBatchTokens">;

/**
 * Attention of a job's packed documents. The ranks of a ring wait for one another in every micro-batch, those
 * that share the batch once a step at least: the slowest of them decides. Heads and tensor ranks have the same
 * sequence each, whole.
 * @returns undefined where documents were not counted
 */
export function packedAttention(job: PackedJob): ((shares: SequenceShares) => PackedAttention) | undefined {
  const counted = countedDocuments(job);
  if (!counted) return undefined;
  const sequences = job.globalBatchTokens / job.sequenceLengthTokens;
  return ({ ring, microBatchSize, dataParallel }) => {
    const own = counted.rings.findLast(({ ranks }) => ranks <= ring) as Ring;
    const together = slowest(own, ring, microBatchSize);
    const share = Math.max(together, slowest(own, ring * dataParallel, sequences / dataParallel));
    return {
      share,
      firstTurn: own.firstTurn,
      meetingShare: Math.max(share, slowest(own, ring * dataParallel, microBatchSize)),
    };
  };
}
