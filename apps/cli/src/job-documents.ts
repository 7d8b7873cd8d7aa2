import { countPackedDocuments } from "@internevo/data";
import { ProblemError, type JobSpec } from "@internevo/domain";
import { clusterRanks } from "@internevo/plan";

/**
 * A job from a file with what its packed documents leave of attention, counted where its data can be read here.
 * Elsewhere, and where the data is at fault, it is planned as of one document a sequence, and answers say so.
 */
export async function withDocuments(job: JobSpec): Promise<JobSpec> {
  try {
    const documents = (await countPackedDocuments(job.data, { ...job, ranks: clusterRanks(job) }))?.documents;
    return documents === undefined ? job : { ...job, documents };
  } catch (error) {
    if (error instanceof ProblemError) return job;
    throw error;
  }
}
