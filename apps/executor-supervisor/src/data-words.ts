import type { PreparedData } from "@internevo/data";
import { formatCounted, sourcesOf, type Data, type Failure } from "@internevo/domain";

/** Files that a message names where a job has many. */
const MOST_NAMED = 3;

/**
 * A failure of a job with text, whose ranks name the file of tokens that was made of it: it names the job's own
 * files instead, which people know.
 * @param read what the ranks read
 */
export function namingText(
  failure: Failure,
  data: Data | null,
  read: Pick<PreparedData, "path" | "sources">,
): Failure {
  if (data === null) return failure;
  const tokenFiles = (read.sources ?? [read]).map(({ path }) => path);
  let { message } = failure;
  for (const [index, { data: source, part }] of sourcesOf(data).entries()) {
    const tokenFile = tokenFiles[index];
    if (source.format !== "text" || tokenFile === undefined) continue;
    const named = source.paths.slice(0, MOST_NAMED);
    const more = source.paths.length - named.length;
    const files = [...named, ...(more === 0 ? [] : [formatCounted(more, "more file")])].join(", ");
    message = message
      .replaceAll(` (${part}.path = ${JSON.stringify(tokenFile)})`, "")
      .replaceAll(`token file ${tokenFile}`, `the text of ${part}.paths (${files})`)
      .replaceAll(`first ${tokenFile},`, `first ${named[0] ?? tokenFile},`);
  }
  return { ...failure, message };
}
