import { formatCounted, formatInteger, type JobSpec, type ProblemDetail } from "@internevo/domain";

/**
 * A batch that is more than all of the data: the tokens of the whole training are easily written there.
 * @param dataTokens undefined where they are not known
 */
export function batchWarnings(
  { globalBatchTokens }: Pick<JobSpec, "globalBatchTokens">,
  dataTokens: number | undefined,
): ProblemDetail[] {
  if (dataTokens === undefined || globalBatchTokens <= dataTokens) return [];
  return [
    {
      field: "globalBatchTokens",
      value: globalBatchTokens,
      message: `is more than the ${formatCounted(dataTokens, "token")} of the job's data: each step reads some of it again`,
      remedy: `give the tokens of one step, at most ${formatInteger(dataTokens)}, or more data; steps says how long the job trains`,
    },
  ];
}
