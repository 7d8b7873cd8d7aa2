import type { Command } from "commander";
import { clustersTable, clusterText } from "../cluster-view.ts";
import type { Context } from "../context.ts";
import { addList } from "../lists.ts";

export function addCluster(program: Command, context: Context): void {
  const cluster = program
    .command("cluster")
    .description("the clusters of the installation, and who uses them");
  addList(cluster, context, {
    description: "list clusters: what they have, whether they can be used, who uses them, how many wait",
    list: (client, query) => client.listClusters(query),
    none: "no clusters",
    table: clustersTable,
  });
  cluster
    .command("show")
    .description("one cluster, with those that wait for it, in their order, and its profiles")
    .argument("<name>", "name of the cluster, as `internevo cluster list` shows it")
    .action(async (name: string) => {
      const output = context.output();
      const client = await context.client();
      const record = await client.getCluster(name, { signal: context.signal });
      if (output.json) output.document(record);
      else output.data(clusterText(record, output.colors));
    });
}
