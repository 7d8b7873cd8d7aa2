import { constants, type BigIntStats } from "node:fs";
import { open, stat, type FileHandle } from "node:fs/promises";
import { ProblemError } from "@internevo/domain";

/** What a file is that is no regular one; undefined for a regular one. */
function otherKind(found: BigIntStats): string | undefined {
  if (found.isFile()) return undefined;
  if (found.isDirectory()) return "a directory";
  if (found.isFIFO()) return "a pipe";
  if (found.isSocket()) return "a socket";
  return "a device";
}

/**
 * Opens a file for reading, with an error that people understand. Only regular files: opening a pipe waits
 * for its writer, opening a device may act on it.
 */
export async function openData(
  path: string,
  field: string,
): Promise<{ handle: FileHandle; sizeBytes: number; modifiedNanoseconds: bigint }> {
  const refuse = (message: string, remedy: string, cause?: unknown): ProblemError =>
    new ProblemError("data-invalid", `${path} ${message}`, [{ field, value: path, message, remedy }], {
      cause,
    });
  const assertRegular = (found: BigIntStats): void => {
    const kind = otherKind(found);
    if (kind !== undefined)
      throw refuse(
        `is ${kind}`,
        kind === "a directory" ? "give the files in it, one by one" : "give a regular file",
      );
  };
  let handle: FileHandle;
  try {
    assertRegular(await stat(path, { bigint: true }));
    // Should the path mean something else by now, this does not wait for it.
    handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if (error instanceof ProblemError) throw error;
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "ENOTDIR")
      throw refuse("does not exist", "give the path of a file that exists on the machine that trains", error);
    if (code === "EACCES")
      throw refuse("cannot be read", "give the service's user the right to read it", error);
    throw refuse(`cannot be opened (${code ?? String(error)})`, "check the file", error);
  }
  try {
    const found = await handle.stat({ bigint: true });
    assertRegular(found);
    if (found.size === 0n) throw refuse("is empty", "give a file with content");
    return { handle, sizeBytes: Number(found.size), modifiedNanoseconds: found.mtimeNs };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** Exactly so many bytes of a file, from a place that its size says is there. */
export async function readExactly(handle: FileHandle, position: number, length: number): Promise<Buffer> {
  const bytes = Buffer.alloc(length);
  let filled = 0;
  while (filled < length) {
    const { bytesRead } = await handle.read(bytes, filled, length - filled, position + filled);
    if (bytesRead === 0)
      throw new ProblemError(
        "data-invalid",
        `a data file became shorter while it was read: ${length - filled} bytes are missing at ${position + filled}`,
        [
          {
            field: "data",
            message: "changed while it was read",
            remedy: "submit the job again when the file is whole",
          },
        ],
      );
    filled += bytesRead;
  }
  return bytes;
}
