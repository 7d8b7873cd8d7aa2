import {
  differencesOf,
  formatMoment,
  formatSeconds,
  formatSignedPercent,
  lowered,
  planChanges,
  planLabel,
  PROPOSAL_STATE_WORDS,
  type Proposal,
  type WorkloadSummary,
} from "@internevo/domain";
import { table, type Colors } from "./output.ts";
import { shortIds } from "./resolve.ts";
import { callingName, MOST_OF_NAME } from "./views.ts";

const NONE = "–";
const when = (instant: string | null): string => (instant === null ? NONE : formatMoment(instant));

export function workloadsTable(workloads: readonly WorkloadSummary[], colors: Colors): string {
  const short = shortIds(workloads.map(({ id }) => id));
  return table<WorkloadSummary>(
    [
      { title: "ID", value: (workload) => short(workload.id) },
      { title: "NAME", most: MOST_OF_NAME, value: (workload) => workload.name },
      { title: "SCHEDULE", value: (workload) => `${workload.cron} ${workload.timeZone}` },
      {
        title: "POLICY",
        spare: 1,
        value: ({ policy, changeWindow: window }) =>
          window === null ? policy : `${policy} ${window.from}-${window.to}`,
      },
      { title: "NEXT RUN", value: ({ enabled, nextRunAt }) => (enabled ? when(nextRunAt) : "paused") },
      { title: "LAST RUN", value: (workload) => when(workload.lastRunAt) },
      {
        title: "OUTCOME",
        value: (workload) =>
          isBeingPlanned(workload) ? "queued or running" : (workload.lastOutcome ?? NONE),
      },
    ],
    workloads,
    colors,
  );
}

/** A run was asked for and has not ended. */
export const isBeingPlanned = (workload: WorkloadSummary): boolean =>
  workload.lastRunAt !== null && workload.lastOutcome === null;

/** Why a workload has no proposal. */
export function noProposalsText(workload: WorkloadSummary): string {
  if (isBeingPlanned(workload))
    return `no proposals yet: the run of ${when(workload.lastRunAt)} is queued or running`;
  if (workload.lastRunAt === null)
    return `no proposals: it has not been planned yet${workload.nextRunAt === null ? "" : `, next ${when(workload.nextRunAt)}`}; now: internevo replan run ${callingName(workload)}`;
  return `no proposals: the last run, ${when(workload.lastRunAt)}, ${workload.lastOutcome ?? "found none"}`;
}

export function proposalsText(proposals: readonly Proposal[], colors: Colors): string {
  const short = shortIds(proposals.map(({ id }) => id));
  return table<Proposal>(
    [
      { title: "ID", value: ({ id }) => short(id) },
      { title: "CREATED", value: (proposal) => when(proposal.createdAt) },
      { title: "STATE", value: ({ state }) => lowered(PROPOSAL_STATE_WORDS[state]) },
      { title: "PROPOSED", below: true, value: (proposal) => planLabel(proposal.proposed.plan) },
      {
        title: "STEP TIME",
        align: "right",
        value: (proposal) => formatSeconds(proposal.proposed.predicted.stepTimeSeconds),
      },
      {
        title: "PREDICTED",
        align: "right",
        value: (proposal) =>
          proposal.predictedGain > 0 ? formatSignedPercent(proposal.predictedGain) : NONE,
      },
      {
        title: "MEASURED",
        align: "right",
        value: ({ measuredGain }) => (measuredGain === null ? NONE : formatSignedPercent(measuredGain)),
      },
      {
        title: "AGAINST THE PLAN IN USE",
        below: true,
        value: ({ current, proposed, predictedGain }) =>
          current === null
            ? "first plan: none was in use"
            : `${predictedGain > 0 ? "" : "the one in use does not fit any more; "}${planChanges(differencesOf(current.plan, proposed.plan))}`,
      },
      { title: "WHY", below: true, value: ({ reason }) => reason ?? "" },
    ],
    proposals,
    colors,
  );
}
