import { createHash } from "node:crypto";
import { mkdir, readdir, readlink, rename, rm, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { LET_IT_GO_ON } from "@internevo/domain";
import type { CheckedWeights } from "./initial-weights.ts";
import { hasNewLink } from "./path-for-ranks.ts";
import { passingName, removeAbandoned } from "./passing-files.ts";
import { weightsFault } from "./weights-fault.ts";

/** The folders of a job are its own: only the services write there. */
const OWN_FOLDER = 0o700;
const ALREADY_THERE = ["EEXIST", "ENOTEMPTY"];

const nameOf = ({ documents, files }: CheckedWeights): string =>
  createHash("sha256")
    .update(JSON.stringify([[...documents], [...files]]))
    .digest("hex");

/**
 * Writes a folder of the services that the trainer reads weights from, whatever becomes of the folder that was checked:
 * copies of what describes them, and links to where the files with their tensors lie.
 * @param directory holds such folders of one job; each is written once
 */
export async function handOverWeights(checked: CheckedWeights, directory: string): Promise<string> {
  const path = join(directory, nameOf(checked));
  await mkdir(directory, { recursive: true, mode: OWN_FOLDER });
  await removeAbandoned(directory);
  const passing = passingName(path);
  try {
    await mkdir(passing, { mode: OWN_FOLDER });
    for (const [name, text] of checked.documents) await writeFile(join(passing, name), text);
    for (const [name, leads] of checked.files) await symlink(leads, join(passing, name));
    await rename(passing, path);
  } catch (error) {
    await rm(passing, { recursive: true, force: true });
    if (!ALREADY_THERE.includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
  }
  return path;
}

/**
 * Checks that what {@link handOverWeights} wrote leads to the files that were checked, for right before a launch.
 * @throws ProblemError `data-invalid`
 */
export async function assertWeightsLeadStill(folder: string): Promise<void> {
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    if (!entry.isSymbolicLink()) continue;
    const leads = await readlink(join(folder, entry.name));
    if (!(await hasNewLink(leads))) continue;
    throw weightsFault(
      leads,
      "does not lead any more to the file that was checked",
      `leave the weights in ${dirname(leads)} until the job has ended, and ${LET_IT_GO_ON}`,
    );
  }
}
