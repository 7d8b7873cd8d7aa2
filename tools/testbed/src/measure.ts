import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { NATIVE_PROTOCOL, type ProbeConfig } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import { launchRanks, launchTarget, probeIn, type Probe } from "@internevo/launcher";
import { clustersFileOf, type State } from "./testbed.ts";

const NATIVE =
  process.env["INTERNEVO_NATIVE_DIRECTORY"] ?? resolve(import.meta.dirname, "../../../native/dist");
const SIZES_BYTES = [16 * 1024, 1024 ** 2, 8 * 1024 ** 2];
const OPERATIONS = ["all-gather", "all-reduce", "broadcast"] as const;

/** One row: the same operation between two ranks of one node and between two nodes. */
export interface Compared {
  readonly op: string;
  readonly bytes: number;
  readonly intraNodeSeconds: number;
  readonly interNodeSeconds: number;
}

/**
 * Measures what the planner would see of a testbed of at least two nodes of two ranks: medians of collectives
 * of two ranks.
 */
export async function compareLinks({ name, settings }: State): Promise<Compared[]> {
  const { nodes, ranksPerNode } = settings;
  if (nodes < 2 || ranksPerNode < 2)
    throw new ProblemError(
      "bad-request",
      `testbed ${name} has ${nodes} nodes of ${ranksPerNode} ranks: two of two are needed to compare`,
    );
  const placements = [
    ["intra-node", [0, 1]],
    ["inter-node", [0, 2]],
  ] as const;
  const collectives = OPERATIONS.flatMap((op) =>
    SIZES_BYTES.flatMap((bytes) =>
      placements.map(([placement, group]): ProbeConfig["collectives"][number] => ({
        op,
        bytes,
        groups: [[...group]],
        placement,
      })),
    ),
  );
  const config: ProbeConfig = {
    protocol: NATIVE_PROTOCOL,
    threadsPerRank: 1,
    minimumSamples: 5,
    maximumSeconds: 0.5,
    targetRelativeSpread: 0.05,
    collectives,
    modules: [],
    overlaps: [],
    device: false,
  };
  const target = await launchTarget(
    { name, nodes: 2, gpusPerNode: 2, launcher: "ssh" },
    clustersFileOf(name),
  );
  const runDirectory = await mkdtemp(join(tmpdir(), "internevo-testbed-probe-"));
  const seconds = new Map<string, number>();
  const keyOf = (op: string, bytes: number, placement: string): string => `${op} ${bytes} ${placement}`;
  try {
    const outcome = await launchRanks<Probe>({
      program: probeIn(NATIVE),
      config,
      ranks: 4,
      threadsPerRank: 1,
      ...target,
      runDirectory,
      timeoutSeconds: 300,
      onEvent: (event) => {
        if (event.event === "collective")
          seconds.set(keyOf(event.op, event.bytes, event.placement), event.medianSeconds);
      },
    });
    if (outcome.status !== "completed")
      throw new ProblemError(
        "unavailable",
        `the probe did not finish: ${outcome.status === "failed" ? outcome.failure.message : outcome.status}`,
      );
  } finally {
    await rm(runDirectory, { recursive: true, force: true });
  }
  const of = (op: string, bytes: number, placement: string): number =>
    seconds.get(keyOf(op, bytes, placement)) ?? Number.NaN;
  return OPERATIONS.flatMap((op) =>
    SIZES_BYTES.map((bytes) => ({
      op,
      bytes,
      intraNodeSeconds: of(op, bytes, "intra-node"),
      interNodeSeconds: of(op, bytes, "inter-node"),
    })),
  );
}

export const comparisonText = (rows: readonly Compared[]): string => {
  const microseconds = (value: number): string => (value * 1e6).toFixed(0).padStart(14);
  return [
    `${"two ranks".padEnd(12)}${"bytes".padStart(10)}${"one node, µs".padStart(14)}${"two nodes, µs".padStart(14)}${"ratio".padStart(8)}`,
    ...rows.map(
      ({ op, bytes, intraNodeSeconds, interNodeSeconds }) =>
        op.padEnd(12) +
        String(bytes).padStart(10) +
        microseconds(intraNodeSeconds) +
        microseconds(interNodeSeconds) +
        (interNodeSeconds / intraNodeSeconds).toFixed(1).padStart(8),
    ),
  ].join("\n");
};
