// Whether every package that a source imports is declared in the package.json of its own room.
import { existsSync, readFileSync } from "node:fs";
import { builtinModules } from "node:module";
import { dirname, join } from "node:path";

type Dependencies = Readonly<Record<string, string>>;
export interface Manifest {
  readonly name?: string;
  readonly dependencies?: Dependencies;
  readonly optionalDependencies?: Dependencies;
  readonly devDependencies?: Dependencies;
}
/** By the path of its package.json. */
export type Manifests = ReadonlyMap<string, Manifest>;

export interface CruisedModule {
  readonly source: string;
  /** What is written in the import, and the file that it means. */
  readonly dependencies: readonly { readonly module: string; readonly resolved?: string }[];
}

/** `@scope/name/part` → `@scope/name`; undefined for what is no package. */
export function packageOf(specifier: string): string | undefined {
  if (/^[./#]/.test(specifier) || specifier.startsWith("node:") || builtinModules.includes(specifier))
    return undefined;
  const parts = specifier.split("/");
  return parts.slice(0, specifier.startsWith("@") ? 2 : 1).join("/");
}

/** Sources that no product holds: they may use what their room declares for development. */
const isForTests = (source: string): boolean =>
  /\.test\.tsx?$|(^|\/)test\/|^tools\/|^libs\/test-kit\/|\.config\.ts$/.test(source);

/** Tools that run without the packages of the workspace. */
const RUNS_ALONE = /^tools\/(frameworks|setup|check)\//;

/** The package.json of a source's room: the nearest above it. */
function manifestOf(source: string, manifests: Manifests): readonly [string, Manifest] {
  for (let directory = dirname(source); ; directory = dirname(directory)) {
    const path = join(directory, "package.json");
    const manifest = manifests.get(path);
    if (manifest) return [path, manifest];
    if (directory === ".") return [path, {}];
  }
}

/** Every package.json above the sources. */
export function readManifests(sources: readonly string[]): Manifests {
  const manifests = new Map<string, Manifest>();
  for (const source of sources)
    for (let directory = dirname(source); ; directory = dirname(directory)) {
      const path = join(directory, "package.json");
      if (!manifests.has(path) && existsSync(path))
        manifests.set(path, JSON.parse(readFileSync(path, "utf8")) as Manifest);
      if (directory === ".") break;
    }
  return manifests;
}

/**
 * A line for each package that a room uses and does not declare, or reaches into by a path. What the root declares for development is
 * there for every test.
 */
export function undeclared(modules: readonly CruisedModule[], manifests: Manifests): string[] {
  const root = manifests.get("package.json") ?? {};
  const faults = new Set<string>();
  for (const { source, dependencies } of modules) {
    const [path, manifest] = manifestOf(source, manifests);
    const test = isForTests(source);
    const declared: Dependencies = {
      ...manifest.dependencies,
      ...manifest.optionalDependencies,
      ...(test ? { ...manifest.devDependencies, ...root.devDependencies } : {}),
      [manifest.name ?? ""]: "itself",
    };
    for (const { module, resolved } of dependencies) {
      const [room, { name: other }] = manifestOf(resolved ?? source, manifests);
      // What lies in no room, such as an example, has no package to import.
      if (module.startsWith(".") && room !== path && room !== "package.json" && !RUNS_ALONE.test(source))
        faults.add(`${path}: ${source} reaches into ${other} by ${module}: import the package`);
      const name = packageOf(module);
      if (name !== undefined && declared[name] === undefined)
        faults.add(
          `${path}: ${name} is used by ${source}: add it to ${test ? "devDependencies" : "dependencies"}`,
        );
    }
  }
  return [...faults].sort();
}
