import { formatCounted, formatPercent } from "./figures.ts";
import type { JobSpec } from "./job.ts";
import type { PackedDocuments } from "./packed-documents.ts";

type CountedJob = Pick<JobSpec, "documents" | "data" | "sequenceLengthTokens" | "model">;

/** What was counted of a job's documents; undefined where it was counted for other sequences, or not at all. */
export function countedDocuments(job: CountedJob): PackedDocuments | undefined {
  const { documents, data, sequenceLengthTokens, model } = job;
  if (documents === undefined || data?.packing !== "documents") return undefined;
  return documents.sequenceLengthTokens === sequenceLengthTokens &&
    documents.slidingWindowTokens === model.slidingWindowTokens
    ? documents
    : undefined;
}

/**
 * A job whose answers are compared over several lengths of a sequence: documents are counted in one, so each is
 * planned as of one document.
 */
export const withoutDocuments = ({ documents: _counted, ...job }: JobSpec): JobSpec => job;

/** One sentence on whether packed documents were counted; undefined where a job packs none. */
export function documentsWords(job: CountedJob): string | undefined {
  if (job.data?.packing !== "documents") return undefined;
  const counted = countedDocuments(job);
  if (counted)
    return (
      `Packed documents are counted: attention does ${formatPercent(counted.rings[0]?.work ?? 1)} of the work of ` +
      `one document a sequence, by ${formatCounted(counted.sequences, "sequence")} of the data with ` +
      `${counted.meanDocuments.toFixed(1)} documents each on average.`
    );
  return (
    "Packed documents are not counted: attention is planned as of one document a sequence, which is an upper " +
    "bound. They are counted where the data can be read, at the job's own sequence length."
  );
}
