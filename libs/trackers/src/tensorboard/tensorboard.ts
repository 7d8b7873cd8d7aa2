import { mkdir, open, type FileHandle } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { TrackedJob } from "../metrics.ts";
import { StartOverError, type Tracker } from "../tracker.ts";
import { headerOf, recordsOf } from "./encode.ts";

/** What a directory can be called: names of jobs may have anything in them. */
const nameOf = (text: string): string => text.replaceAll(/[^A-Za-z0-9._-]+/g, "_").slice(0, 60);

/** The file of a job's run, below the directory that TensorBoard is pointed at. */
export const eventFile = (directory: string, { id, name, project, createdAt }: TrackedJob): string =>
  join(
    directory,
    project,
    `${nameOf(name)}-${id.slice(0, 8)}`,
    `events.out.tfevents.${Math.floor(createdAt.getTime() / 1000)}.${id}`,
  );

async function openFile(path: string): Promise<FileHandle> {
  try {
    return await open(path, "r+");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    await mkdir(dirname(path), { recursive: true });
    // Not "w+": another process may have made it by now.
    return open(path, "a+").then((made) => made.close().then(() => open(path, "r+")));
  }
}

async function writeAll(file: FileHandle, bytes: Buffer, position: number): Promise<void> {
  let written = 0;
  while (written < bytes.length)
    written += (await file.write(bytes, written, bytes.length - written, position + written)).bytesWritten;
}

/**
 * Event files below a directory, one a job. Bytes behind those that were written down are of a writer that died: they
 * are written again at their place, and are the same.
 */
export function tensorBoard(directory: string): Tracker {
  return {
    kind: "tensorboard",
    key: `tensorboard:${directory}`,
    // Each holds a thread for files while it works; a directory that stands still leaves others their threads.
    concurrency: 2,
    async send({ job, events }, { bytes, externalId }) {
      const path = eventFile(directory, job);
      const records = events.flatMap((event) => recordsOf(job, event));
      const data = Buffer.concat(bytes === 0 ? [headerOf(job), ...records] : records);
      if (data.length === 0) return { bytes, externalId };
      const file = await openFile(path);
      try {
        const { size } = await file.stat();
        if (size < bytes)
          throw new StartOverError(`${path} has ${size} bytes of the ${bytes} that were written`);
        await writeAll(file, data, bytes);
        await file.truncate(bytes + data.length);
        await file.datasync();
      } finally {
        await file.close();
      }
      return { bytes: bytes + data.length, externalId: path };
    },
  };
}
