import { BYTES_PER_TEXT_TOKEN, diskOf, marginBytes, textRoomFault, type Disk } from "@internevo/data";
import {
  checkpointsAtOnce,
  formatBytes,
  ProblemError,
  totalParameters,
  type JobSpec,
  type ProblemDetail,
} from "@internevo/domain";

/** 4 bytes each of a weight and its two moments, whatever the precision (native/MEMORY.md). */
const CHECKPOINT_BYTES_PER_PARAMETER = 12;

/** What is said of a directory that is not this machine's. */
const ELSEWHERE = new Set<string | undefined>(["ENOENT", "ENOTDIR", "EACCES"]);

/**
 * The disk of the supervisors' directory, which need not be there, or be readable, on the machine of the API; a disk
 * that fails is another matter.
 */
const diskHere = (dataDirectory: string) =>
  diskOf(dataDirectory).catch((error: NodeJS.ErrnoException) => {
    if (ELSEWHERE.has(error.code)) return undefined;
    throw error;
  });

export interface CheckpointRoom {
  readonly checkpointBytes: number;
  readonly disk: Disk;
}

/** What a disk has for checkpoints beside what stays free, and how that is said of the directory. */
const roomOn = (disk: Disk) => Math.max(0, disk.freeBytes - marginBytes(disk));
const roomWords = (disk: Disk, directory: string) =>
  `${directory} has ${formatBytes(disk.freeBytes)} left, of which ${formatBytes(marginBytes(disk))} stay free`;

/**
 * The room that a job's checkpoints take and have; undefined where nothing is saved, or the data directory is
 * not known or elsewhere.
 */
export async function checkpointRoom(
  { model, checkpointing }: Pick<JobSpec, "model" | "checkpointing">,
  dataDirectory: string | undefined,
): Promise<CheckpointRoom | undefined> {
  if (checkpointing === null || dataDirectory === undefined) return undefined;
  const disk = await diskHere(dataDirectory);
  return disk && { checkpointBytes: CHECKPOINT_BYTES_PER_PARAMETER * totalParameters(model), disk };
}

/** @throws ProblemError `job-invalid` when not even one checkpoint has room beside what stays free. */
export function assertRoom(room: CheckpointRoom | undefined, directory: string): void {
  if (room === undefined || room.checkpointBytes <= roomOn(room.disk)) return;
  const message = `save ${formatBytes(room.checkpointBytes)} each, and ${roomWords(room.disk, directory)}`;
  throw new ProblemError("job-invalid", `checkpoints ${message}`, [
    {
      field: "checkpointing",
      message,
      remedy: "make room there, or start the services with another data directory",
    },
  ]);
}

/** Fewer checkpoints have room than the job keeps, while the next one is written. */
export function roomWarnings(
  room: CheckpointRoom | undefined,
  { checkpointing }: Pick<JobSpec, "checkpointing">,
  directory: string,
): ProblemDetail[] {
  if (room === undefined || checkpointing === null) return [];
  const atOnce = checkpointsAtOnce(checkpointing);
  if (atOnce * room.checkpointBytes <= roomOn(room.disk)) return [];
  return [
    {
      field: "checkpointing.keepLast",
      value: checkpointing.keepLast,
      message:
        `keeps ${atOnce - 1} checkpoints and needs ${formatBytes(atOnce * room.checkpointBytes)} ` +
        `while the next is written, and ${roomWords(room.disk, directory)}`,
      remedy: checkpointing.keepLast > 2 ? "keep fewer, or make room there" : "make room there",
    },
  ];
}

/** What a job's text takes as tokens, with the data directory's disk; undefined as of {@link checkpointRoom}. */
export async function textRoom(textBytes: number, dataDirectory: string | undefined) {
  if (textBytes === 0 || dataDirectory === undefined) return undefined;
  const disk = await diskHere(dataDirectory);
  return disk && { writtenBytes: BYTES_PER_TEXT_TOKEN * textBytes, disk };
}
type TextRoom = Awaited<ReturnType<typeof textRoom>>;

const textFault = (room: TextRoom, data: JobSpec["data"], directory: string): ProblemDetail | undefined => {
  const fault = room && textRoomFault(room.writtenBytes, room.disk, directory);
  return fault && { ...fault, field: data?.format === "text" ? fault.field : "data" };
};

/** @throws ProblemError `job-invalid` for text that even the empty disk has no room for. */
export function assertTextFits(room: TextRoom, { data }: Pick<JobSpec, "data">, directory: string): void {
  const fault = textFault(room, data, directory);
  if (!room || !fault || room.writtenBytes + marginBytes(room.disk) <= room.disk.sizeBytes) return;
  throw new ProblemError("job-invalid", `the text files ${fault.message}`, [fault]);
}

/** Room may be made until the job prepares its text, and text that was prepared before is not written again. */
export function textWarnings(
  room: TextRoom,
  { data }: Pick<JobSpec, "data">,
  directory: string,
): ProblemDetail[] {
  const fault = textFault(room, data, directory);
  return fault
    ? [
        {
          ...fault,
          message: `${fault.message}: unless it was prepared before, or copies that no job needs make room, the job will fail`,
        },
      ]
    : [];
}
