import type { ClusterChoice } from "@internevo/advisor";
import { formatCounted, formatInteger, formatSpan, MAXIMUM_RANKS } from "@internevo/domain";

/** Larger clusters that are named to ask for, each twice the one before it. */
const NAMED = 3;

type Size = Pick<ClusterChoice, "nodes" | "gpus" | "seconds">;

const range = (from: number, most: number): string => {
  const last = Math.min(from * 2 ** (NAMED - 1), most);
  return last < 2 * from ? `--values ${from}` : `--values ${from}..${last}`;
};

const span = (seconds: number): string => formatSpan(1000 * seconds);

const mostNodes = ({ nodes, gpus }: Size): number => Math.floor((MAXIMUM_RANKS * nodes) / gpus);

/** Nodes that the deadline takes if the times go on falling as they did from one size to the next. */
function nodesAtSeenScaling(smaller: Size, fastest: Size, deadlineSeconds: number): number {
  const exponent = Math.log(smaller.seconds / fastest.seconds) / Math.log(fastest.nodes / smaller.nodes);
  return fastest.nodes * (fastest.seconds / deadlineSeconds) ** (1 / exponent);
}

const OTHERWISE = "Give it more time, fewer tokens or a larger batch";

/** What to ask next where the fastest of the clusters takes longer than the deadline. */
function adviceAfter(fastest: Size, considered: readonly Size[], deadlineSeconds: number): string {
  const most = mostNodes(fastest);
  const needed = Math.ceil((fastest.nodes * fastest.seconds) / deadlineSeconds);
  const perfect = `At perfect scaling the deadline takes ${formatCounted(needed, "node")}`;
  const doubled = fastest.nodes * 2 ** Math.ceil(Math.log2(needed / fastest.nodes));
  if (doubled > most) return `${perfect}, more than a job can have (${formatInteger(most)}). ${OTHERWISE}`;
  if (considered.some(({ nodes }) => nodes > fastest.nodes))
    return `More nodes than ${formatInteger(fastest.nodes)} were slower, so more will not do. ${OTHERWISE}`;
  const smaller = considered
    .filter(({ nodes }) => nodes < fastest.nodes)
    .reduce<Size | undefined>(
      (next, one) => (next === undefined || one.nodes > next.nodes ? one : next),
      undefined,
    );
  if (smaller && nodesAtSeenScaling(smaller, fastest, deadlineSeconds) > most)
    return (
      `From ${formatInteger(smaller.nodes)} to ${formatCounted(fastest.nodes, "node")} the time only fell ` +
      `from ${span(smaller.seconds)} to ${span(fastest.seconds)}, so more will not do. ${OTHERWISE}`
    );
  return `${perfect}, and more in practice: ask for ${range(doubled, most)}`;
}

/** What to say where no cluster is fast enough. @param asked nodes that were looked at */
export function unmetText(
  asked: readonly number[],
  considered: readonly Size[],
  deadlineSeconds: number,
): string {
  const names =
    asked.length > 1 ? `${asked.slice(0, -1).join(", ")} or ${asked.at(-1) ?? ""}` : String(asked[0]);
  const fastest = considered.reduce<Size | null>(
    (best, choice) => (best === null || choice.seconds < best.seconds ? choice : best),
    null,
  );
  if (fastest === null)
    return `no cluster of ${names} nodes has a plan: ask for larger ones, e.g. ${range(Math.max(...asked) * 2, MAXIMUM_RANKS)}`;
  return (
    `no cluster of ${names} nodes meets the deadline: the fastest, of ${formatCounted(fastest.nodes, "node")}, ` +
    `takes ${span(fastest.seconds)}, and the deadline is ${span(deadlineSeconds)}.\n` +
    `${adviceAfter(fastest, considered, deadlineSeconds)}.`
  );
}
