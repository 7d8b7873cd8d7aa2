import { execFile } from "node:child_process";
import { healthOf, type ClusterLook } from "../cluster-look.ts";
import { reachCommand } from "./command.ts";
import type { HostCluster } from "./settings.ts";

/** A host that has not answered by then counts as away. */
const ANSWER_SECONDS = 10;
/** Hosts that are asked at a time. */
const AT_A_TIME = 16;
const MOST_REASON_CHARACTERS = 200;

/** Why a host cannot be reached; undefined: it can. */
function faultOf(cluster: HostCluster, host: string, signal: AbortSignal): Promise<string | undefined> {
  const [program, ...parameters] = reachCommand(cluster, host) as [string, ...string[]];
  const options = { timeout: ANSWER_SECONDS * 1000, killSignal: "SIGKILL", signal } as const;
  return new Promise((resolve) => {
    execFile(program, parameters, options, (error, _stdout, stderr) => {
      if (!error) return resolve(undefined);
      const said = stderr.trim().split("\n").at(-1)?.trim() || error.message;
      const why = error.killed === true ? `no answer within ${ANSWER_SECONDS} s` : said;
      resolve(`${host} (${why.slice(0, MOST_REASON_CHARACTERS)})`);
    });
  });
}

/** Asks every host by the remote shell. */
export async function lookAtHosts(cluster: HostCluster, signal: AbortSignal): Promise<ClusterLook> {
  const { hosts } = cluster;
  const names = hosts.map(({ name }) => name);
  const waiting = [...names];
  const faults = new Map<string, string>();
  const asker = async (): Promise<void> => {
    for (let host = waiting.shift(); host !== undefined; host = waiting.shift()) {
      const fault = await faultOf(cluster, host, signal);
      if (fault !== undefined) faults.set(host, fault);
    }
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, asker));
  return {
    capacity: {
      nodes: hosts.length,
      ranks: hosts.reduce((sum, { slots }) => sum + slots, 0),
      gpus: null,
      memoryBytes: null,
    },
    // In the order of the description.
    health: healthOf(
      names.length,
      names.flatMap((name) => faults.get(name) ?? []),
    ),
  };
}
