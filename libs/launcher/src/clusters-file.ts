import { readFile } from "node:fs/promises";
import { ProblemError, validate } from "@internevo/domain";
import { Type } from "typebox";
import type { Launcher } from "./launcher.ts";

/** The variable that names the file with the installation's clusters. */
export const CLUSTERS_VARIABLE = "INTERNEVO_CLUSTERS";

const MOST_NAME_CHARACTERS = 100;

/** @throws ProblemError `job-invalid`, always. */
export function refuseCluster(field: string, value: unknown, message: string, remedy: string): never {
  throw new ProblemError("job-invalid", `no launcher here runs this cluster: ${field} ${message}`, [
    { field, value, message, remedy },
  ]);
}

/** @throws ProblemError `unavailable`, always: an entry that is valid by its schema contradicts itself. */
export function refuseEntry(
  clustersFile: string,
  field: string,
  value: unknown,
  message: string,
  remedy: string,
): never {
  throw new ProblemError("unavailable", `the clusters file ${clustersFile} is not valid: ${field}`, [
    { field, value, message, remedy },
  ]);
}

/** The clusters that an installation describes, by the names that jobs use. */
export type DescribedClusters = Readonly<
  Record<string, { readonly launcher: Launcher; readonly entry: unknown }>
>;

/**
 * Reads the clusters file anew each time, so that it may change under a running service.
 * @throws ProblemError `unavailable` when the file cannot be read or says something else.
 */
export async function readClusters(path: string, launchers: readonly Launcher[]): Promise<DescribedClusters> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    throw new ProblemError(
      "unavailable",
      `the clusters file ${path} cannot be read: ${(error as Error).message}`,
      [
        {
          field: CLUSTERS_VARIABLE,
          value: path,
          message: "is no JSON file that can be read",
          remedy: "name the file that describes the clusters, or use launcher: local",
        },
      ],
    );
  }
  const what = `the clusters file ${path}`;
  const names = Type.Record(Type.String({ minLength: 1, maxLength: MOST_NAME_CHARACTERS }), Type.Unknown());
  const { clusters } = validate(
    Type.Object({ clusters: names }, { additionalProperties: false }),
    parsed,
    "unavailable",
    what,
  );
  const described = launchers.flatMap((launcher) =>
    launcher.description === null ? [] : [{ launcher, description: launcher.description }],
  );
  return Object.fromEntries(
    Object.entries(clusters).map(([name, entry]) => {
      const members = typeof entry === "object" && entry !== null ? entry : {};
      // An entry says by one member of which kind it is, so that its faults are those of that kind.
      const kind = described.find(({ description }) => description.member in members) ?? described[0];
      if (kind === undefined) throw new TypeError("no launcher has clusters that are described");
      const whole = Type.Object({ clusters: Type.Object({ [name]: kind.description.schema }) });
      validate(whole, { clusters: { [name]: entry } }, "unavailable", what);
      return [name, { launcher: kind.launcher, entry }];
    }),
  );
}
