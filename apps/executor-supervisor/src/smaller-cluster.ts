import {
  LET_IT_GO_ON,
  planLabel,
  worldSize,
  type Candidate,
  type Failure,
  type JobSpec,
  type Plan,
  type PlanningResult,
  type Profile,
} from "@internevo/domain";
import { noFeasiblePlan, noRunnablePlan } from "@internevo/stages";

/** Nodes that a plan occupies: all of its cluster's. */
export const nodesOf = (plan: Plan, { gpusPerNode }: Pick<JobSpec["cluster"], "gpusPerNode">): number =>
  Math.ceil(worldSize(plan) / gpusPerNode);

/** The job on as many nodes as a plan of it occupies. */
export const specOn = (spec: JobSpec, nodes: number): JobSpec =>
  nodes === spec.cluster.nodes ? spec : { ...spec, cluster: { ...spec.cluster, nodes } };

const count = (nodes: number): string => `${nodes} ${nodes === 1 ? "node" : "nodes"}`;

/** Whether training may go on, and has a plan to go on with. */
export type Smaller =
  { readonly nodes: number; readonly candidate: Candidate } | { readonly failure: Failure };

export interface SmallerClusterOptions {
  readonly spec: JobSpec;
  /** Of the whole cluster; group sizes that it lacks are taken from those that it has. */
  readonly profile: Profile;
  /** Nodes that can take jobs: fewer than training had. */
  readonly nodesLeft: number;
  /** Why training cannot go on as it was. */
  readonly failure: Failure;
  readonly search: (spec: JobSpec, profile: Profile) => Promise<PlanningResult>;
}

/**
 * Plans a job again for the nodes that are left: the same batch, sequences and model, and the best predicted
 * plan that the executor runs on as many of them as any plan divides over and fits, down to
 * `cluster.minNodes`. No trials: they would keep the nodes that are left from training.
 * @returns the job's failure when it does not allow so few nodes, or no plan fits.
 */
export async function planForFewerNodes(options: SmallerClusterOptions): Promise<Smaller> {
  const { spec, profile, nodesLeft, failure } = options;
  const { minNodes } = spec.cluster;
  if (minNodes === undefined) return { failure };
  if (nodesLeft < minNodes)
    return {
      failure: {
        ...failure,
        message: `${failure.message}; the job goes on with cluster.minNodes ${minNodes} or more`,
      },
    };
  let why: { readonly failure: Failure; readonly isMemory: boolean } | undefined;
  for (let nodes = nodesLeft; nodes >= minNodes; nodes -= 1) {
    const smaller = specOn(spec, nodes);
    const result = await options.search(smaller, profile);
    const [candidate] = result.runnableCandidates;
    if (candidate) return { nodes, candidate };
    // Of most nodes, where it is memory that they lack: with fewer it is worse.
    const isMemory = result.closest !== null;
    if (!why || (isMemory && !why.isMemory))
      why = {
        failure:
          result.counts.feasible === 0 ? noFeasiblePlan(smaller, result) : noRunnablePlan(smaller, result),
        isMemory,
      };
  }
  const tried = nodesLeft === minNodes ? count(nodesLeft) : `${nodesLeft} to ${minNodes} nodes`;
  return {
    failure: {
      code: why?.failure.code ?? "no-feasible-plan",
      message: `${failure.message}; there is no plan for ${tried}: ${why?.failure.message ?? "none was found"}`,
      remedy: `bring the nodes back, and ${LET_IT_GO_ON}`,
    },
  };
}

/** What people are told of a change of plan. */
export const changeWords = (
  before: { readonly nodes: number; readonly plan: Plan },
  after: { readonly nodes: number; readonly plan: Plan },
  nodesLeft: number,
  fromStep: number,
): string =>
  `the cluster has ${count(nodesLeft)} left of the ${before.nodes} that training had: it was planned again for ${count(after.nodes)}, and goes on ${fromStep === 0 ? "from its beginning" : `from the checkpoint of step ${fromStep}`} with ${planLabel(after.plan)} (before: ${planLabel(before.plan)})`;
