import { readFile } from "node:fs/promises";
import { ProblemError, validate, type ProblemDetail } from "@internevo/domain";
import { Type, type Static, type TSchema } from "typebox";
import type { Launcher } from "./launcher.ts";

/** The variable that names the file with the installation's clusters. */
export const CLUSTERS_VARIABLE = "INTERNEVO_CLUSTERS";

const MOST_NAME_CHARACTERS = 100;

/** Something is wrong with what the installation says of its clusters, and with no job: its operator mends it. */
export class ClustersFileError extends ProblemError {
  constructor(message: string, details: readonly ProblemDetail[], options?: ErrorOptions) {
    super("unavailable", message, details, options);
  }
}

/** @throws ProblemError `job-invalid`, always. */
export function refuseCluster(field: string, value: unknown, message: string, remedy: string): never {
  throw new ProblemError("job-invalid", `no launcher here runs this cluster: ${field} ${message}`, [
    { field, value, message, remedy },
  ]);
}

/** @throws ClustersFileError always: an entry that is valid by its schema contradicts itself. */
export function refuseEntry(
  clustersFile: string,
  field: string,
  value: unknown,
  message: string,
  remedy: string,
): never {
  throw new ClustersFileError(`the clusters file ${clustersFile} is not valid: ${field}`, [
    { field, value, message, remedy },
  ]);
}

/** `fault`: why nobody can use the cluster; its entry is none that its launcher knows. */
interface Entry {
  readonly launcher: Launcher;
  readonly entry: unknown;
  readonly fault?: ClustersFileError | undefined;
}

/** The clusters that an installation describes, by the names that jobs use. */
export type DescribedClusters = Readonly<Record<string, Entry>>;

/** As `validate`, of what the file says. @throws ClustersFileError */
function validated<S extends TSchema>(path: string, schema: S, value: unknown): Static<S> {
  try {
    return validate(schema, value, "unavailable", `the clusters file ${path}`);
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    throw new ClustersFileError(error.message, error.details, { cause: error });
  }
}

function faultOf(path: string, schema: TSchema, value: unknown): ClustersFileError | undefined {
  try {
    validated(path, schema, value);
    return undefined;
  } catch (error) {
    if (error instanceof ClustersFileError) return error;
    throw error;
  }
}

/**
 * Reads the clusters file anew each time, so that it may change under a running service. An entry that is wrong is
 * the fault of its cluster, and of no other.
 * @throws ClustersFileError when the file cannot be read or is none of clusters.
 */
export async function readClusters(path: string, launchers: readonly Launcher[]): Promise<DescribedClusters> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    throw new ClustersFileError(`the clusters file ${path} cannot be read: ${(error as Error).message}`, [
      {
        field: CLUSTERS_VARIABLE,
        value: path,
        message: "is no JSON file that can be read",
        remedy: "name the file that describes the clusters, or use launcher: local",
      },
    ]);
  }
  const names = Type.Record(Type.String({ minLength: 1, maxLength: MOST_NAME_CHARACTERS }), Type.Unknown());
  const { clusters } = validated(
    path,
    Type.Object({ clusters: names }, { additionalProperties: false }),
    parsed,
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
      const fault = faultOf(path, whole, { clusters: { [name]: entry } });
      return [name, { launcher: kind.launcher, entry, fault }];
    }),
  );
}
