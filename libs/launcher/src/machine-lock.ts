import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { formatMoment, validate } from "@internevo/domain";
import { Type, type Static } from "typebox";
import { bootId } from "./process/processes.ts";

/** What ranks on this machine are for: what measures must be alone on it, trainings may run side by side. */
export type MachineUse = "measure" | "train";

/** What a holder says of itself, in the file that it keeps locked. */
const HolderSchema = Type.Object(
  {
    pid: Type.Integer({ minimum: 1 }),
    use: Type.Enum(["measure", "train"]),
    since: Type.String({ maxLength: 40 }),
    dataDirectory: Type.String({ maxLength: 4096 }),
  },
  { additionalProperties: false },
);
type Holder = Static<typeof HolderSchema>;

interface FoundHolder {
  readonly uid: number;
  /** Undefined where its file says nothing that can be read. */
  readonly holder: Holder | undefined;
}

export interface MachineLockOptions {
  /** Where installations meet: every user has a directory `internevo-UID` in it. */
  readonly directory: string;
  /** Names this installation: its own launches keep out of each other's way by leases. */
  readonly dataDirectory: string;
  readonly use: MachineUse;
  /** Ends the wait. */
  readonly signal: AbortSignal;
  /** Told whenever another holder is waited for, in words that anybody may read. */
  readonly onWait: (message: string) => void;
  /** Told of what disturbs and is not waited for, in such words. */
  readonly onNotice: (message: string) => void;
  /** Told the same with paths, processes and users: for the log of the service. */
  readonly onDetails: (message: string) => void;
}

export interface MachineLock {
  release(): void;
}

const UID_DIRECTORY = /^internevo-(\d+)$/;
const MOST_BYTES = 8192;
const MOST_FILES = 1000;

/**
 * Locks an open file for as long as this process keeps it open: the lock belongs to what is open, which the
 * child shares. @returns false while another has it
 */
async function flock(file: number, mode: "exclusive" | "shared"): Promise<boolean> {
  const child = spawn("flock", [`--${mode}`, "--nonblock", "3"], {
    stdio: ["ignore", "ignore", "ignore", file],
  });
  const [status] = (await once(child, "exit")) as [number | null];
  if (status !== 0 && status !== 1) throw new Error(`flock ended with ${status ?? "a signal"}`);
  return status === 0;
}

const ownUid = (): number => process.getuid?.() ?? 0;

/** The directory of this user's holders. @throws Error where somebody else made it, or may change it. */
function ownDirectory(parent: string): string {
  const path = join(parent, `internevo-${ownUid()}`);
  try {
    mkdirSync(path, { mode: 0o755 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  // Not followed: a link of somebody else's would have us write where it leads.
  const found = lstatSync(path);
  if (!found.isDirectory() || found.uid !== ownUid() || (found.mode & 0o022) !== 0)
    throw new Error(`${path} is another user's, or may be changed by others`);
  return path;
}

const nameEnd = (): string => `.${bootId()}.lock`;

/** Makes a file that says who holds the machine; it has its name only while it is locked. */
async function publish(own: string, holder: Holder): Promise<MachineLock> {
  const path = join(own, `${randomUUID()}${nameEnd()}`);
  const fresh = `${path}.new`;
  const file = openSync(
    fresh,
    constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
    0o644,
  );
  let isReleased = false;
  const release = (): void => {
    if (isReleased) return;
    isReleased = true;
    rmSync(path, { force: true });
    rmSync(fresh, { force: true });
    closeSync(file);
  };
  try {
    writeSync(file, JSON.stringify(holder));
    if (!(await flock(file, "exclusive"))) throw new Error(`${fresh} is locked by somebody else`);
    renameSync(fresh, path);
  } catch (error) {
    release();
    throw error;
  }
  return { release };
}

/** Who holds the machine by a file; undefined: nobody does, and where the file is ours it is removed. */
async function holderIn(path: string, uid: number): Promise<FoundHolder | undefined> {
  let file: number;
  try {
    // Of another user it may be anything: no link is followed, and no pipe waited for.
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch {
    return undefined;
  }
  try {
    const found = fstatSync(file);
    if (!found.isFile() || found.uid !== uid) return undefined;
    if (await flock(file, "shared")) {
      if (uid === ownUid()) rmSync(path, { force: true });
      return undefined;
    }
    const bytes = Buffer.alloc(MOST_BYTES);
    const text = bytes.subarray(0, readSync(file, bytes, 0, MOST_BYTES, 0)).toString();
    try {
      return { uid, holder: validate(HolderSchema, JSON.parse(text), "internal", path) };
    } catch {
      return { uid, holder: undefined };
    }
  } finally {
    closeSync(file);
  }
}

/** All that hold the machine, of whichever user. */
async function holders(parent: string): Promise<FoundHolder[]> {
  const found: FoundHolder[] = [];
  for (const name of readdirSync(parent)) {
    const uid = Number(UID_DIRECTORY.exec(name)?.[1] ?? "-1");
    const directory = join(parent, name);
    let files: string[];
    try {
      const own = lstatSync(directory);
      // Named after one user and made by another, it says nothing of either.
      if (uid < 0 || !own.isDirectory() || own.uid !== uid) continue;
      files = readdirSync(directory).filter((file) => file.endsWith(nameEnd()));
    } catch {
      continue; // it is gone, or may not be looked into
    }
    for (const file of files.slice(0, MOST_FILES)) {
      const holder = await holderIn(join(directory, file), uid);
      if (holder !== undefined) found.push(holder);
    }
  }
  return found;
}

/** What a holder does, for anybody: whose it is, and where, is not theirs to know. */
function wordsOf({ holder }: FoundHolder): string {
  if (holder === undefined) return "another installation uses this machine";
  const does = holder.use === "measure" ? "measures" : "trains";
  return `another installation ${does} on this machine, since ${formatMoment(holder.since)}`;
}

const detailsOf = (found: FoundHolder): string =>
  `${wordsOf(found)}: user ${found.uid}` +
  (found.holder ? `, process ${found.holder.pid}, ${found.holder.dataDirectory}` : "");

/**
 * Waits until no other installation does on this machine what would disturb, and keeps others from it until
 * it is released or this process ends. Installations of one user wait for each other, and everybody for those
 * of root. Of other users a notice is given: whoever could be made to wait for anybody would wait for ever.
 * Where the machine cannot be locked, a notice says so, and work goes on.
 * @throws the signal's reason.
 */
export async function lockMachine(options: MachineLockOptions): Promise<MachineLock> {
  const { directory, dataDirectory, use, signal, onWait, onNotice, onDetails } = options;
  const disturbs = ({ uid, holder }: FoundHolder): boolean =>
    !(uid === ownUid() && holder?.dataDirectory === dataDirectory) &&
    (use === "measure" || holder?.use !== "train");
  const isWaitedFor = ({ uid }: FoundHolder): boolean => uid === ownUid() || uid === 0;
  let said = "";
  try {
    const own = ownDirectory(directory);
    for (;;) {
      signal.throwIfAborted();
      // Told first, looked at afterwards: of two that begin at once each sees the other, and both step back
      // for unequal times.
      let mine: MachineLock | undefined;
      let others = (await holders(directory)).filter(disturbs);
      if (!others.some(isWaitedFor)) {
        mine = await publish(own, { pid: process.pid, use, since: new Date().toISOString(), dataDirectory });
        try {
          others = (await holders(directory)).filter(disturbs);
        } catch (error) {
          mine.release();
          throw error;
        }
      }
      const first = others.find(isWaitedFor);
      if (mine && first === undefined) {
        for (const other of others) {
          onNotice(`${wordsOf(other)}: what is measured meanwhile may be disturbed`);
          onDetails(`not waited for: ${detailsOf(other)}`);
        }
        return mine;
      }
      mine?.release();
      if (first !== undefined && detailsOf(first) !== said) {
        said = detailsOf(first);
        onWait(wordsOf(first));
        onDetails(`waited for: ${said}`);
      }
      await sleep(500 + 500 * Math.random(), undefined, { signal });
    }
  } catch (error) {
    signal.throwIfAborted();
    onNotice("this machine cannot be locked: other installations on it may measure at the same time");
    onDetails(`this machine cannot be locked: ${(error as Error).message}`);
    return { release: () => {} };
  }
}
