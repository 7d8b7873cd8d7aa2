import { execFile, spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdir, symlink } from "node:fs/promises";
import { join, relative, resolve } from "node:path";
import { promisify } from "node:util";
import { SERVICE_NAMES, type ServiceProcess } from "@internevo/local-stack";

const CHECKOUT = resolve(import.meta.dirname, "..", "..", "..", "..");
const SCOPE = "@internevo";
const ROOMS = ["libs", "apps", "tools"] as const;

/**
 * What is upgraded from while nothing has been released: the last commit whose database lacks the migrations
 * `0027_steps_once` and later. The first of them changes where the steps of a job's log are kept.
 */
export const BEFORE_RELEASES = "8a78d42c0e96cd90d09493f9d4c21f36e1c4655a";

const run = promisify(execFile);
const git = async (checkout: string, ...args: string[]): Promise<string> =>
  (await run("git", ["-C", checkout, ...args], { maxBuffer: 2 ** 28 })).stdout.trim();

export interface Revision {
  readonly name: string;
  readonly commit: string;
  /** Why it is this one. */
  readonly because: string;
}

/** What is upgraded from: what is asked for, else the newest tag, else a commit from before releases. */
async function named(asked: string | undefined, checkout: string): Promise<Omit<Revision, "commit">> {
  if (asked !== undefined) return { name: asked, because: "--from asks for it" };
  const [tag = ""] = (
    await git(checkout, "tag", "--merged", "HEAD", "--sort=-version:refname", "--sort=-creatordate")
  ).split("\n");
  if (tag !== "") return { name: tag, because: "it is the newest tag" };
  return { name: BEFORE_RELEASES, because: "there is no tag, and it is before the last migrations" };
}

/**
 * The revision to upgrade from.
 * @throws Error naming it where this clone does not have it, as a shallow one may not
 */
export async function oldRevision(asked: string | undefined, checkout = CHECKOUT): Promise<Revision> {
  const { name, because } = await named(asked, checkout);
  try {
    const commit = await git(checkout, "rev-parse", "--verify", "--quiet", `${name}^{commit}`);
    return { name, because, commit };
  } catch {
    const isShallow = (await git(checkout, "rev-parse", "--is-shallow-repository")) === "true";
    const remedy = isShallow
      ? "this clone is shallow: run git fetch --unshallow --tags, or name a revision that it has"
      : "name a revision that git log shows, or run git fetch --tags";
    throw new Error(`--from ${name}: this clone has no such revision (${because}); ${remedy}`);
  }
}

/** Writes the files of a revision into a folder. */
async function extract(checkout: string, commit: string, directory: string): Promise<void> {
  const archive = spawn("git", ["-C", checkout, "archive", "--format=tar", commit]);
  const unpack = spawn("tar", ["-x", "-C", directory], { stdio: ["pipe", "inherit", "inherit"] });
  archive.stdout.pipe(unpack.stdin);
  archive.stderr.pipe(process.stderr);
  const code = (child: typeof archive | typeof unpack) =>
    new Promise<number | null>((done, failed) => void child.on("error", failed).on("close", done));
  const codes = await Promise.all([code(archive), code(unpack)]);
  if (codes.some((each) => each !== 0))
    throw new Error(`git archive ${commit} | tar -x ended with ${codes.join(" and ")}`);
}

/** Folders of a tree that are packages of the workspace, by their names without scope. */
function packagesOf(tree: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const room of ROOMS)
    for (const folder of existsSync(join(tree, room)) ? readdirSync(join(tree, room)) : []) {
      const file = join(tree, room, folder, "package.json");
      if (!existsSync(file)) continue;
      const { name } = JSON.parse(readFileSync(file, "utf8")) as { name: string };
      found.set(name.replace(`${SCOPE}/`, ""), join(tree, room, folder));
    }
  return found;
}

const link = (target: string, path: string): Promise<void> => symlink(target, path);

/**
 * Gives a tree of another version the packages of this checkout, and its own under the workspace's scope. Node
 * resolves links to where they lead, so packages find what they depend on there.
 */
export async function linkPackages(tree: string, checkout = CHECKOUT): Promise<void> {
  const modules = join(tree, "node_modules");
  await mkdir(join(modules, SCOPE), { recursive: true });
  for (const name of readdirSync(join(checkout, "node_modules")))
    if (name !== SCOPE && !name.startsWith(".") && name !== "node_modules")
      await link(join(checkout, "node_modules", name), join(modules, name));
  for (const [name, folder] of packagesOf(tree)) {
    await link(folder, join(modules, SCOPE, name));
    // What only one room has in a version of its own.
    const own = join(checkout, relative(tree, folder), "node_modules");
    if (existsSync(own)) await link(own, join(folder, "node_modules"));
  }
}

type Lock = { readonly packages: Readonly<Record<string, { version?: string; link?: boolean }>> };

/** Packages of npm that a lock file has in another version than this checkout's, or that only it has. */
export function otherPackages(old: Lock, current: Lock): readonly string[] {
  return Object.entries(old.packages).flatMap(([path, { version, link: isLink }]) => {
    if (!path.startsWith("node_modules/") || isLink === true) return [];
    const here = current.packages[path]?.version;
    return here === version
      ? []
      : [`${path.replace("node_modules/", "")} ${version}, here ${here ?? "none"}`];
  });
}

export interface OldVersion {
  readonly revision: Revision;
  readonly services: readonly ServiceProcess[];
  /** Packages of npm that it was made for in another version than it runs with here. */
  readonly otherPackages: readonly string[];
  /** Files of the native programs, and of how they are spoken to, that have changed since. */
  readonly nativeChanges: readonly string[];
  readonly newMigrations: readonly string[];
}

const lockOf = (tree: string): Lock =>
  JSON.parse(readFileSync(join(tree, "package-lock.json"), "utf8")) as Lock;
const migrationsOf = (tree: string): string[] =>
  readdirSync(join(tree, "libs/store/drizzle")).filter((name) => name.endsWith(".sql"));

/** Puts another version's sources into an empty folder, ready to run with what this checkout has built. */
export async function prepareOldVersion(revision: Revision, tree: string): Promise<OldVersion> {
  await extract(CHECKOUT, revision.commit, tree);
  await linkPackages(tree);
  await link(join(CHECKOUT, "native", "dist"), join(tree, "native", "dist"));
  const changed = await git(
    CHECKOUT,
    "diff",
    "--name-only",
    revision.commit,
    "--",
    "native/src",
    "libs/contracts/src/native.ts",
  );
  const had = new Set(migrationsOf(tree));
  return {
    revision,
    services: SERVICE_NAMES.map((name) => ({ name, entry: join(tree, "apps", name, "src", "main.ts") })),
    otherPackages: otherPackages(lockOf(tree), lockOf(CHECKOUT)),
    nativeChanges: changed === "" ? [] : changed.split("\n"),
    newMigrations: migrationsOf(CHECKOUT).filter((name) => !had.has(name)),
  };
}
