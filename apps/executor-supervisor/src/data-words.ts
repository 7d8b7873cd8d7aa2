import { formatCounted, type Data, type Failure } from "@internevo/domain";

/** Files that a message names where a job has many. */
const MOST_NAMED = 3;

/**
 * A failure of a job of text, whose ranks name the file of tokens that was made of it: it names the job's own
 * files instead, which people know.
 * @param tokenFile what the ranks read
 */
export function namingText(failure: Failure, data: Data | null, tokenFile: string): Failure {
  if (data?.format !== "text") return failure;
  const named = data.paths.slice(0, MOST_NAMED);
  const more = data.paths.length - named.length;
  const files = [...named, ...(more === 0 ? [] : [formatCounted(more, "more file")])].join(", ");
  const message = failure.message
    .replaceAll(` (data.path = ${JSON.stringify(tokenFile)})`, "")
    .replaceAll(`token file ${tokenFile}`, `the text of data.paths (${files})`);
  return { ...failure, message };
}
