import type { Stats } from "node:fs";
import { lstat, readlink } from "node:fs/promises";
import { isAbsolute, join, resolve, sep } from "node:path";

/*
 * Ranks open files by paths, and often on other hosts. A link that whoever owns the data could have lead elsewhere must
 * not be in such a path. A link that only this host's root can change may be: hosts have links of their own
 * there, such as /data to where a file system is mounted. What such a link leads to here may not be on another host.
 */

/** Links that one path may lead through, as for the kernel. */
const MOST_LINKS = 40;
const OTHERS_WRITE = 0o022;

/** Where a path leads on this host. */
interface Place {
  /** As ranks are given it. */
  readonly path: string;
  /** With no link left in it. */
  readonly real: string;
  /** The folder that holds it, links followed; of / itself undefined. */
  readonly parent: Place | undefined;
  /** Only root of this host can change what is in it, or put another folder there. */
  readonly isFixed: boolean;
}

interface Walk {
  readonly top: Place;
  readonly topDevice: number;
  linksLeft: number;
}

/** Another file system may be shared with hosts on which other people are root. */
const isFixedFolder = (found: Stats, { topDevice }: Walk): boolean =>
  found.isDirectory() && found.uid === 0 && (found.mode & OTHERS_WRITE) === 0 && found.dev === topDevice;

/** A place, and whether links on the way to it were taken out of its path. */
interface Led {
  readonly place: Place;
  readonly isWithout: boolean;
}

async function enter(from: Place, name: string, walk: Walk): Promise<Led> {
  const real = join(from.real, name);
  const path = join(from.path, name);
  const found = await lstat(real);
  if (!found.isSymbolicLink()) {
    const isFixed = from.isFixed && isFixedFolder(found, walk);
    return { place: { path, real, parent: from, isFixed }, isWithout: false };
  }
  walk.linksLeft -= 1;
  if (walk.linksLeft < 0)
    throw Object.assign(new Error(`${real} leads through too many links`), { code: "ELOOP" });
  const target = await follow(from, await readlink(real), walk);
  if (!from.isFixed || target.isWithout) return { ...target, isWithout: true };
  return { place: { ...target.place, path }, isWithout: false };
}

async function follow(from: Place, way: string, walk: Walk): Promise<Led> {
  let [place, isWithout] = [isAbsolute(way) ? walk.top : from, false];
  for (const name of way.split(sep)) {
    if (name === "" || name === ".") continue;
    if (name === "..") {
      place = place.parent ?? walk.top;
      continue;
    }
    const led = await enter(place, name, walk);
    place = led.place;
    isWithout ||= led.isWithout;
  }
  return { place, isWithout };
}

/**
 * The path of a file as ranks are to be given it. Links are followed, but for those that only root of this host can
 * change: they stay in it. A path that was returned comes back the same as long as nobody else has put a link in.
 * @returns it, and the path with no link left at all
 * @throws an error of the file system where nothing is there
 */
export async function pathForRanks(path: string): Promise<Pick<Place, "path" | "real">> {
  const found = await lstat("/");
  const isFixed = found.uid === 0 && (found.mode & OTHERS_WRITE) === 0;
  const top: Place = { path: "/", real: "/", parent: undefined, isFixed };
  const walk: Walk = { top, topDevice: found.dev, linksLeft: MOST_LINKS };
  return (await follow(top, resolve(path), walk)).place;
}

/** As {@link pathForRanks}. @returns undefined where the file system leads nowhere, or does not say where */
export const pathForRanksNow = (path: string): Promise<Pick<Place, "path" | "real"> | undefined> =>
  pathForRanks(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === undefined) throw error;
    return undefined;
  });

/** Whether a path that ranks are given has got a link in it, and so may lead elsewhere. */
export async function hasNewLink(path: string): Promise<boolean> {
  // What cannot be reached now, ranks cannot open either: they say so, and are started again.
  const now = await pathForRanksNow(path);
  return now !== undefined && now.path !== path;
}
