import { spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { ProblemError } from "@internevo/domain";
import { copyBinaries, isReachableByAll, type PostgresBinaries } from "./postgres-binaries.ts";

/**
 * How Postgres runs; it refuses to as root.
 * - `self`: we are not root.
 * - `user`: as the system's unprivileged user, where it can reach the files.
 * - `namespace`: in a user namespace where root's files are an ordinary user's, so that a directory below
 *   /root works.
 * - `relocated`: as the unprivileged user with the files below /var/lib/internevo, where no namespace may be
 *   made.
 */
export type PostgresIdentity = (typeof IDENTITIES)[number];
const IDENTITIES = ["self", "user", "namespace", "relocated"] as const;

export interface PostgresHome {
  readonly identity: PostgresIdentity;
  readonly binaries: PostgresBinaries;
  readonly dataDirectory: string;
  /**
   * Put before the program: changes the user, and asks the kernel to stop Postgres when this process dies.
   */
  readonly asOwner: (
    program: string,
    args: readonly string[],
    parentDeathSignal?: "INT",
  ) => { readonly command: string; readonly args: string[] };
}

const UNPRIVILEGED = { user: "nobody", uid: 65_534, gid: 65_534 };
/** Any user that every system knows by name: initdb looks its own name up. */
const NAMESPACE_UID = 1;
const RELOCATED = "/var/lib/internevo";
/** In a stack's directory: its own Postgres, as whom it runs, and where it lies if elsewhere. */
const [DATA, IDENTITY, LOCATION] = ["postgres", "postgres-identity", "postgres-location"] as const;

const canMakeNamespace = (): boolean =>
  spawnSync("unshare", ["--user", `--map-user=${NAMESPACE_UID}`, "true"], { stdio: "ignore" }).status === 0;
const hasSetpriv = (): boolean => spawnSync("setpriv", ["--version"], { stdio: "ignore" }).status === 0;

function chooseIdentity(binaries: PostgresBinaries, stackDirectory: string): PostgresIdentity {
  if (process.getuid?.() !== 0) return "self";
  if (
    isReachableByAll(dirname(stackDirectory)) &&
    (binaries.source === "system" || isReachableByAll(binaries.bin))
  )
    return "user";
  return canMakeNamespace() ? "namespace" : "relocated";
}

const unfit = (path: string, message: string, remedy: string): ProblemError =>
  new ProblemError("conflict", `${path} ${message}`, [
    { field: "dataDirectory", value: path, message, remedy },
  ]);

/**
 * Whether a directory has a Postgres already, or says where one is. A restore makes its own: another would run
 * commands of whoever put it there.
 * @throws ProblemError `conflict`
 */
export function assertNoPostgres(stackDirectory: string): void {
  const found = [DATA, IDENTITY, LOCATION].find((name) => existsSync(join(stackDirectory, name)));
  if (found === undefined) return;
  const remedy = "restore into a directory that is not there yet";
  throw unfit(join(stackDirectory, found), "was not made by this restore", remedy);
}

/**
 * A folder of the data's own below /var/lib, remembered in the stack's directory: when that is removed,
 * nothing finds the old data again.
 */
function relocatedDirectory(stackDirectory: string): string {
  const note = join(stackDirectory, LOCATION);
  if (!existsSync(note)) writeFileSync(note, join(RELOCATED, randomUUID()), { mode: 0o600 });
  const place = readFileSync(note, "utf8").trim();
  if (dirname(place) === RELOCATED && /^[0-9a-f-]{36}$/.test(basename(place))) return place;
  throw unfit(note, `names no folder of ${RELOCATED}`, "put back the place that it had, or restore a backup");
}

/** As whom a directory's Postgres was made. @throws ProblemError `conflict` for a note that says nothing known */
function notedIdentity(note: string): PostgresIdentity | undefined {
  if (!existsSync(note)) return undefined;
  const said = readFileSync(note, "utf8").trim();
  const known = IDENTITIES.find((identity) => identity === said);
  if (known) return known;
  throw unfit(note, "names no way to run Postgres", `write one of ${IDENTITIES.join(", ")} there`);
}

/**
 * Decides where and as whom Postgres runs, and makes its directory.
 * @param stackDirectory the stack's own, made already.
 * @param forced for tests of the ways that this machine would not choose.
 */
export function preparePostgresHome(
  found: PostgresBinaries,
  stackDirectory: string,
  forced?: PostgresIdentity,
): PostgresHome {
  // What a directory was made with it keeps: its files belong to that user.
  const note = join(stackDirectory, IDENTITY);
  const identity = forced ?? notedIdentity(note) ?? chooseIdentity(found, stackDirectory);
  const setpriv = hasSetpriv();
  if (identity !== "self" && !setpriv) {
    throw new ProblemError("unavailable", "Postgres does not run as root, and setpriv is not installed", [
      {
        field: "DATABASE_URL",
        message: "is not given",
        remedy: "install util-linux, run as another user, or set DATABASE_URL",
      },
    ]);
  }
  writeFileSync(note, identity, { mode: 0o600 });
  const parent = identity === "relocated" ? relocatedDirectory(stackDirectory) : stackDirectory;
  const binaries = identity === "relocated" ? copyBinaries(found, RELOCATED) : found;
  mkdirSync(parent, { recursive: true, mode: identity === "relocated" ? 0o755 : 0o700 });
  const dataDirectory = join(parent, DATA);
  mkdirSync(dataDirectory, { recursive: true, mode: 0o700 });
  if (identity === "user" || identity === "relocated") {
    // Others may walk through to what is theirs; nothing else in it can be read by them.
    if (identity === "user") chmodSync(stackDirectory, 0o711);
    chownSync(dataDirectory, UNPRIVILEGED.uid, UNPRIVILEGED.gid);
  }
  const death = (signal?: string) => (signal ? ["--pdeathsig", signal] : []);
  const asUser =
    identity === "user" || identity === "relocated"
      ? ["--reuid", String(UNPRIVILEGED.uid), "--regid", String(UNPRIVILEGED.gid), "--clear-groups"]
      : [];
  return {
    identity,
    binaries,
    dataDirectory,
    asOwner(path, args, parentDeathSignal) {
      if (!setpriv) return { command: path, args: [...args] };
      // The signal is asked for last: a change of user forgets it.
      const inner = ["setpriv", ...asUser, ...death(parentDeathSignal), path, ...args];
      const whole =
        identity === "namespace"
          ? [
              "unshare",
              "--user",
              `--map-user=${NAMESPACE_UID}`,
              `--map-group=${NAMESPACE_UID}`,
              "--",
              ...inner,
            ]
          : inner;
      return parentDeathSignal || asUser.length > 0 || identity === "namespace"
        ? { command: whole[0] as string, args: whole.slice(1) }
        : { command: path, args: [...args] };
    },
  };
}
