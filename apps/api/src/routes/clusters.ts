import { ClusterPageSchema, ClusterRecordSchema } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import { launcherOf } from "@internevo/launcher";
import type { Database } from "@internevo/store";
import { Type } from "typebox";
import { clusterRecord, clusterRecords } from "../clusters/cluster-records.ts";
import type { ClusterWatch } from "../clusters/cluster-watch.ts";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { answers } from "./shapes.ts";

/** @param known names; `machine` is the one of them that jobs may call as they like */
const noCluster = (name: string, known: readonly string[], machine: string | undefined): ProblemError =>
  new ProblemError("not-found", `there is no cluster ${name}`, [
    {
      field: "name",
      value: name,
      message: "names no cluster of this installation",
      remedy: `use one of: ${known.join(", ")}${machine === undefined ? "" : `; jobs may give the cluster ${machine} another name`}`,
    },
  ]);

export function registerClusterRoutes(
  app: ApiInstance,
  options: { readonly database: Database; readonly clusters: ClusterWatch },
): void {
  const { database, clusters } = options;
  const tags = ["clusters"];
  app.get(
    "/clusters",
    {
      config: { role: "viewer", scope: "visible" },
      schema: {
        tags,
        summary: "Clusters of the installation: what they have, how they are, and who uses them",
        description:
          "This machine first, under its own name, then the clusters of the clusters file. Clusters are " +
          "looked at when somebody asks, at most every half minute; `health` is null before the first look.",
        response: answers({ 200: ClusterPageSchema }),
      },
    },
    async (request) => ({
      items: await clusterRecords(database.db, await clusters.clusters(), actorOf(request).project),
      nextCursor: null,
    }),
  );
  app.get(
    "/clusters/:name",
    {
      config: { role: "viewer", scope: "visible" },
      schema: {
        tags,
        summary: "One cluster",
        params: Type.Object({ name: Type.String({ maxLength: 300 }) }),
        response: answers({ 200: ClusterRecordSchema }),
      },
    },
    async (request) => {
      const { name } = request.params;
      const all = await clusters.clusters();
      // A cluster of the file that is called as this machine is the one that somebody means.
      const found = all.findLast((cluster) => cluster.name === name);
      if (!found) {
        const machine = all.find((cluster) => launcherOf(cluster).description === null);
        throw noCluster(name, [...new Set(all.map((cluster) => cluster.name))], machine?.name);
      }
      return clusterRecord(database.db, found, actorOf(request).project);
    },
  );
}
