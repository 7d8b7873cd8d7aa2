import { lstat, readdir } from "node:fs/promises";
import { join } from "node:path";
import type { Artifact, ArtifactKind, JobDetail } from "@internevo/contracts";
import { ifThere } from "@internevo/domain";
import {
  CHECKPOINT_NAME,
  checkpointDirectory,
  exportDirectory,
  jobDirectory,
  timelineDirectory,
} from "@internevo/stages";
import { sizeOf, type Segment } from "./segments.ts";
import { tarSegments } from "./tar.ts";

/** A file or folder of a job, to be downloaded. */
export interface StoredArtifact extends Artifact {
  readonly bytes: number;
  readonly modifiedAt: string;
  readonly segments: readonly Segment[];
}

interface Place {
  readonly kind: ArtifactKind;
  readonly directory: string;
  /** Which of its entries are artifacts: of such names that a header and every file system take. */
  readonly entries: RegExp;
}

const placesOf = (dataDirectory: string, jobId: string): readonly Place[] => [
  { kind: "timeline", directory: timelineDirectory(dataDirectory, jobId), entries: /^\w[\w.+-]*\.json$/ },
  { kind: "checkpoint", directory: checkpointDirectory(dataDirectory, jobId), entries: CHECKPOINT_NAME },
  { kind: "export", directory: exportDirectory(dataDirectory, jobId), entries: /^\w[\w.+-]*$/ },
];

/** The newest of a folder's files. */
async function newestIn(segments: readonly Segment[]): Promise<number> {
  let newest = 0;
  for (const segment of segments)
    if ("path" in segment) newest = Math.max(newest, (await lstat(segment.path)).mtimeMs);
  return newest;
}

async function artifactAt({ kind, directory }: Place, entry: string): Promise<StoredArtifact | undefined> {
  const path = join(directory, entry);
  const found = await lstat(path);
  if (found.isDirectory()) {
    const segments = await tarSegments(path, entry);
    const modified = Math.max(found.mtimeMs, await newestIn(segments));
    return {
      name: `${kind}-${entry}.tar`,
      kind,
      bytes: sizeOf(segments),
      modifiedAt: new Date(modified).toISOString(),
      segments,
    };
  }
  // A link may lead anywhere.
  if (!found.isFile()) return undefined;
  return {
    name: `${kind}-${entry}`,
    kind,
    bytes: found.size,
    modifiedAt: found.mtime.toISOString(),
    segments: [{ path, size: found.size }],
  };
}

const byName = new Intl.Collator("en", { numeric: true });

/** What a job has on disk. A name from outside is only ever compared with these. */
export async function storedArtifacts(dataDirectory: string, jobId: string): Promise<StoredArtifact[]> {
  const artifacts: StoredArtifact[] = [];
  for (const place of placesOf(dataDirectory, jobId)) {
    const entries = ((await ifThere(() => readdir(place.directory))) ?? []).sort(byName.compare);
    for (const entry of entries.filter((each) => place.entries.test(each))) {
      const artifact = await ifThere(() => artifactAt(place, entry));
      if (artifact) artifacts.push(artifact);
    }
  }
  return artifacts;
}

/** Why files of a job's ranks cannot be seen here; null: they can, or there are none. */
export async function absenceOf(
  { id, attempts, spec }: Pick<JobDetail, "id" | "attempts" | "spec">,
  dataDirectory: string | undefined,
): Promise<string | null> {
  const writes = spec.checkpointing !== null || spec.timeline !== undefined;
  if (attempts.length === 0 || !writes) return null;
  if (dataDirectory === undefined)
    return "the API does not know where the services keep their files (INTERNEVO_DATA_DIRECTORY)";
  const directory = jobDirectory(dataDirectory, id);
  return (await ifThere(() => lstat(directory))) === undefined
    ? `its ranks have run, and ${directory} is not on the API's machine: the services keep their files on another`
    : null;
}
