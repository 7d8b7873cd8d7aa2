import type { PreparedData } from "@internevo/data";
import {
  dataFiles,
  formatCounted,
  heldOutData,
  sourcesOf,
  type Data,
  type Failure,
  type JobSpec,
} from "@internevo/domain";

/** Files that a message names where a job has many. */
const MOST_NAMED = 3;

type Read = Pick<PreparedData, "path" | "sources">;

const pathsOf = (read: Read): readonly string[] => (read.sources ?? [read]).map(({ path }) => path);

/** The files that ranks are given of data in place of its own, with these. */
function handedFiles(data: Data | null, read: Read | undefined): [handed: string, own: string][] {
  if (data === null || read === undefined) return [];
  return sourcesOf(data).flatMap(({ data: source }, index) => {
    const path = pathsOf(read)[index];
    if (source.format === "text" || path === undefined) return [];
    const own = dataFiles(source);
    return dataFiles({ ...source, path }).map((file, place): [string, string] => [
      file.path,
      own[place]?.path ?? source.path,
    ]);
  });
}

/** What ranks were given of a job. */
export interface Given {
  readonly dataset: Read;
  readonly heldOut?: Read | undefined;
  readonly weights?: string | undefined;
}

/** A failure of ranks, which name what they were given: it names the job's own files, which people know. */
export function namingOwn(
  failure: Failure,
  spec: Pick<JobSpec, "data" | "validation" | "initialWeights">,
  { dataset, heldOut, weights }: Given,
): Failure {
  const pairs = [...handedFiles(spec.data, dataset), ...handedFiles(heldOutData(spec), heldOut)];
  if (weights !== undefined && spec.initialWeights !== undefined) pairs.push([weights, spec.initialWeights]);
  // One may begin with another.
  pairs.sort(([a], [b]) => b.length - a.length);
  const named = (text: string): string =>
    pairs.reduce((said, [handed, own]) => said.replaceAll(handed, () => own), text);
  const { message, remedy } = namingText(failure, spec.data, dataset);
  return { ...failure, message: named(message), ...(remedy === undefined ? {} : { remedy: named(remedy) }) };
}

/**
 * A failure of a job with text, whose ranks name the file of tokens that was made of it: it names the job's own
 * files instead, which people know.
 * @param read what the ranks read
 */
export function namingText(failure: Failure, data: Data | null, read: Read): Failure {
  if (data === null) return failure;
  const tokenFiles = pathsOf(read);
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
