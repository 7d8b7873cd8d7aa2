import { statfs } from "node:fs/promises";
import { formatBytes, ProblemError, type ProblemDetail } from "@internevo/domain";

/** Text is kept as tokens of so many bytes, one for each byte. */
export const BYTES_PER_TEXT_TOKEN = 2;

/**
 * What stays free of a disk for everything else, a database above all: this share of it, and no more than the bytes.
 * The trainer is told it, since only where it runs can the disk be asked.
 */
export const LEAVE_FREE = { share: 0.05, bytes: 2 ** 30 } as const;

export interface Disk {
  readonly sizeBytes: number;
  readonly freeBytes: number;
}

/** The disk of a folder. */
export async function diskOf(directory: string): Promise<Disk> {
  const { blocks, bavail, bsize } = await statfs(directory);
  return { sizeBytes: blocks * bsize, freeBytes: bavail * bsize };
}

export const marginBytes = ({ sizeBytes }: Pick<Disk, "sizeBytes">): number =>
  Math.min(LEAVE_FREE.share * sizeBytes, LEAVE_FREE.bytes);

/** @param writtenBytes of text's tokens; undefined where they have room beside what stays free. */
export function textRoomFault(
  writtenBytes: number,
  disk: Disk,
  directory: string,
): ProblemDetail | undefined {
  const margin = marginBytes(disk);
  if (writtenBytes + margin <= disk.freeBytes) return undefined;
  return {
    field: "data.paths",
    value: writtenBytes,
    message:
      `take ${formatBytes(writtenBytes)} as tokens, and ${directory} has ${formatBytes(disk.freeBytes)} left, ` +
      `of which ${formatBytes(margin)} stay free`,
    remedy: "make room there, give less text, or give it as a token file, which is not copied",
  };
}

/** @throws ProblemError `data-invalid` where text's tokens have no room. */
export async function assertTextRoom(writtenBytes: number, directory: string): Promise<void> {
  const fault = textRoomFault(writtenBytes, await diskOf(directory), directory);
  if (fault) throw new ProblemError("data-invalid", `the text files ${fault.message}`, [fault]);
}
