import type { ClusterRecord } from "@internevo/client";
import {
  capacityWords,
  CLUSTER_HEALTH_WORDS,
  formatCounted,
  formatMoment,
  JOB_STATE_WORDS,
  lowered,
  positionWords,
} from "@internevo/domain";
import { table, type Colors } from "./output.ts";

/** What people read of clusters: text only. */

const NONE = "–";
const NOT_SEEN = "not looked at yet";

function healthText({ health }: ClusterRecord, colors: Colors): string {
  if (health === null) return NOT_SEEN;
  const words = lowered(CLUSTER_HEALTH_WORDS[health.state]);
  if (health.state === "ready") return colors.green(words);
  return health.state === "away" ? colors.red(words) : colors.yellow(words);
}

/** Whether only work that the token may not see uses it. */
const othersUse = ({ holders, hostsInUse }: ClusterRecord): boolean => holders.length === 0 && hostsInUse > 0;

const holdersText = (cluster: ClusterRecord): string => {
  const { holders } = cluster;
  const [first] = holders;
  if (!first) return othersUse(cluster) ? "other projects" : NONE;
  return holders.length === 1 ? first.name : `${first.name} and ${holders.length - 1} more`;
};

export const clustersTable = (clusters: readonly ClusterRecord[], colors: Colors): string =>
  table<ClusterRecord>(
    [
      { title: "NAME", value: ({ name }) => name },
      { title: "LAUNCHER", value: ({ launcher }) => launcher },
      { title: "HEALTH", value: (cluster) => healthText(cluster, colors) },
      { title: "CAPACITY", value: ({ capacity }) => (capacity === null ? NONE : capacityWords(capacity)) },
      { title: "USED BY", value: holdersText },
      { title: "WAITING", value: ({ waiting }) => (waiting.length === 0 ? NONE : String(waiting.length)) },
      {
        title: "LAST PROFILE",
        value: ({ profiles: [newest] }) => (newest === undefined ? NONE : formatMoment(newest.createdAt)),
      },
    ],
    clusters,
    colors,
  );

/** A heading, and its lines, or why there are none. */
const part = (title: string, lines: readonly string[], none: string, colors: Colors): string[] => [
  "",
  colors.bold(title),
  ...(lines.length === 0 ? [`  ${none}`] : lines.map((line) => `  ${line}`)),
];

export function clusterText(cluster: ClusterRecord, colors: Colors): string {
  const { name, launcher, capacity, health, holders, waiting, profiles } = cluster;
  const fact = (title: string, value: string): string => `${colors.bold(title.padEnd(12))}${value}`;
  return [
    fact("cluster", name),
    fact("launcher", launcher),
    fact("capacity", capacity === null ? NOT_SEEN : capacityWords(capacity)),
    fact("health", `${healthText(cluster, colors)}${health === null ? "" : `: ${health.message}`}`),
    ...(health === null ? [] : [fact("looked at", formatMoment(health.lookedAt))]),
    ...part(
      "used by",
      holders.map(
        ({ kind, name: holder, state, hosts }) =>
          `${kind} ${holder}${state === null ? "" : `, ${lowered(JOB_STATE_WORDS[state])}`}${hosts.length === 0 ? "" : `, on ${hosts.join(", ")}`}`,
      ),
      othersUse(cluster) ? "other projects" : "nobody",
      colors,
    ),
    ...part(
      "waiting",
      waiting.map(
        (waiter) =>
          `${waiter.kind} ${waiter.name}, ${positionWords(waiter)}, since ${formatMoment(waiter.waitingSince)}`,
      ),
      "nobody",
      colors,
    ),
    ...part(
      `profiles${profiles.length === 0 ? "" : `, ${formatCounted(profiles.length, "newest", "newest")}`}`,
      profiles.map(
        ({ name: profile, createdAt, clusterKey }) =>
          `${profile}, ${clusterKey}, stored ${formatMoment(createdAt)}`,
      ),
      "none: the first job measures the cluster",
      colors,
    ),
  ].join("\n");
}
