import { isWaitingMessage, type JobDetail, type JobSummary, type ProfileRecord } from "@internevo/contracts";
import { formatBytes, formatSeconds, isGivenKey, planLabel, usesGpus, worldSize, type Plan, type Proposal, type Report, type Trial, type Workload } from "@internevo/domain";
import type { ProfileSummary } from "@internevo/client";
import { shortIds } from "./resolve.ts";
import { table, type Colors, type Column } from "./output.ts";

/** What people read of jobs, profiles and workloads: text only. */

const NONE = "–";
const percent = (fraction: number): string => `${fraction >= 0 ? "+" : ""}${(fraction * 100).toFixed(1)}%`;
const when = (instant: string | null): string => (instant === null ? NONE : instant.replace("T", " ").replace(/\.\d+Z$/, "Z"));

function stateText(state: string, colors: Colors): string {
  if (state === "succeeded") return colors.green(state);
  if (state === "failed") return colors.red(state);
  if (state === "cancelled" || state === "cancelling") return colors.yellow(state);
  return colors.cyan(state);
}

function progressOf(job: JobSummary): string {
  const { message = "", done = null, total = null } = (job.progress?.stage === job.state && job.progress) || {};
  if (isWaitingMessage(message)) return "waits its turn";
  switch (job.state) {
    case "profiling":
    case "planning":
      return done !== null && total !== null && total > 0 ? `${job.state === "profiling" ? "point" : "batch"} ${done}/${total}` : NONE;
    case "trialling":
      return `trial ${job.trialsDone}/${job.trialsTotal}`;
    case "running":
    case "succeeded":
      return `step ${job.lastStep}/${job.steps}`;
    case "failed":
    case "cancelled":
      return job.lastStep > 0 ? `step ${job.lastStep}/${job.steps}` : NONE;
    case "cancelling":
      return NONE;
  }
}

export function jobsTable(jobs: readonly JobSummary[], colors: Colors): string {
  const short = shortIds(jobs.map(({ id }) => id));
  const columns: Column<JobSummary>[] = [
    { title: "ID", value: (job) => short(job.id) },
    { title: "NAME", value: (job) => job.name },
    { title: "STATE", value: (job) => stateText(job.state, colors) },
    { title: "PROGRESS", value: progressOf },
    { title: "LOSS", align: "right", value: (job) => (job.lastLoss === null ? NONE : job.lastLoss.toFixed(4)) },
    { title: "MODEL", spare: 3, value: (job) => job.model },
    { title: "CLUSTER", spare: 1, value: (job) => job.cluster },
    { title: "CREATED", spare: 2, value: (job) => when(job.createdAt) },
  ];
  return table(columns, jobs, colors);
}

const stepError = (trial: Trial): number | undefined =>
  trial.measured ? (trial.candidate.predicted.stepTimeSeconds - trial.measured.stepTimeSeconds) / trial.measured.stepTimeSeconds : undefined;
const memoryError = (trial: Trial): number | undefined =>
  trial.measured ? (trial.candidate.predicted.peakMemoryBytes - trial.measured.peakMemoryBytes) / trial.measured.peakMemoryBytes : undefined;

/** Predicted beside measured, best predicted first, with the place by measurement. */
export function trialsTable(trials: readonly Trial[], colors: Colors, chosen: JobDetail["chosen"] = null): string {
  const sorted = [...trials].sort((a, b) => a.candidate.rank - b.candidate.rank);
  const times = trials.flatMap((trial) => trial.measured?.stepTimeSeconds ?? []).sort((a, b) => a - b);
  const measured = (show: (trial: Trial & { measured: NonNullable<Trial["measured"]> }) => string) => (trial: Trial) =>
    trial.measured ? show({ ...trial, measured: trial.measured }) : NONE;
  const columns: Column<Trial>[] = [
    { title: "RANK", align: "right", value: (trial) => `#${trial.candidate.rank}` },
    { title: "PLAN", below: true, value: (trial) => planLabel(trial.candidate.plan) },
    { title: "STEP pred.", align: "right", value: (trial) => formatSeconds(trial.candidate.predicted.stepTimeSeconds) },
    { title: "meas.", align: "right", value: measured((trial) => formatSeconds(trial.measured.stepTimeSeconds)) },
    { title: "place", align: "right", value: measured((trial) => String(times.indexOf(trial.measured.stepTimeSeconds) + 1)) },
    { title: "error", align: "right", value: (trial) => (stepError(trial) === undefined ? NONE : percent(stepError(trial) as number)) },
    { title: "TOKENS/GPU/S pred.", align: "right", spare: 3, value: (trial) => trial.candidate.predicted.tokensPerGpuPerSecond.toFixed(0) },
    { title: "meas.", align: "right", spare: 3, value: measured((trial) => trial.measured.tokensPerGpuPerSecond.toFixed(0)) },
    { title: "MEMORY pred.", align: "right", spare: 2, value: (trial) => formatBytes(trial.candidate.predicted.peakMemoryBytes) },
    { title: "meas.", align: "right", value: measured((trial) => formatBytes(trial.measured.peakMemoryBytes)) },
    { title: "error", align: "right", value: (trial) => (memoryError(trial) === undefined ? NONE : percent(memoryError(trial) as number)) },
    { title: "RESULT", value: (trial) => (trial.failure ? colors.red(trial.failure.code) : trial.candidate.rank === chosen?.rank ? colors.green("chosen") : stateText(trial.state, colors)) },
  ];
  return table(columns, sorted, colors);
}

export function reportLines(job: JobDetail, colors: Colors): string[] {
  const { report } = job;
  const lines: string[] = [];
  if (job.chosen) lines.push(`${colors.bold("chosen plan")}   ${planLabel(job.chosen.plan)} (rank #${job.chosen.rank} by prediction)`);
  if (!report) return lines;
  const [trained, loss, predictions] = reportWords(report);
  const beats = report.unigramEntropyNats === null ? undefined : report.finalLossNats < report.unigramEntropyNats;
  lines.push(`${colors.bold("trained")}       ${trained}`);
  lines.push(`${colors.bold("final loss")}    ${beats === undefined ? loss : beats ? colors.green(loss) : colors.red(loss)}`);
  lines.push(`${colors.bold("predictions")}   ${predictions}`);
  return lines;
}

/** A report in words: what was trained, the loss that it ended with, how good the predictions were. */
export function reportWords(report: Report): [trained: string, loss: string, predictions: string] {
  const entropy = report.unigramEntropyNats;
  const verdict = entropy === null ? "" : `, ${report.finalLossNats < entropy ? "" : "not "}below the unigram entropy of the text, ${entropy.toFixed(4)}`;
  const share = (value: number | null): string => (value === null ? NONE : `${(value * 100).toFixed(1)}%`);
  return [
    `${report.steps} steps in ${report.attempts} attempt${report.attempts === 1 ? "" : "s"}, ${formatSeconds(report.meanStepTimeSeconds)} a step, ${report.tokensPerGpuPerSecond.toFixed(0)} tokens/s a rank`,
    `${report.finalLossNats.toFixed(4)} nats a token${verdict} (mean of the last tenth of the steps)`,
    `mean error of step time ${share(report.timeErrorOverTrials)}, of peak memory ${share(report.memoryErrorOverTrials)}; Kendall's τ ${report.kendallTauOverTrials?.toFixed(2) ?? NONE}`,
  ];
}

/** Nodes and plan of each attempt, where they are not the same for all: nodes were lost. */
function attemptPlans({ attempts, spec }: JobDetail): ReadonlyMap<number, string> {
  const labels = attempts.flatMap(({ number, plan }) => (plan ? [[number, `${worldSize(plan) / spec.cluster.gpusPerNode} of ${spec.cluster.nodes} nodes, ${planLabel(plan)}`] as const] : []));
  return new Map(new Set(labels.map(([, label]) => label)).size > 1 ? labels : []);
}

export function jobText(job: JobDetail, colors: Colors): string {
  const lines = [
    `${colors.bold("job")}           ${job.id} ${job.name}`,
    `${colors.bold("state")}         ${stateText(job.state, colors)}${job.reason ? ` (${job.reason})` : ""}, ${progressOf(job)}`,
    `${colors.bold("model")}         ${job.model}, ${job.spec.sequenceLengthTokens} tokens a sequence, ${job.spec.globalBatchTokens} a step, ${job.spec.precision}`,
    `${colors.bold("cluster")}       ${job.cluster}: ${job.spec.cluster.nodes} × ${job.spec.cluster.gpusPerNode} ${usesGpus(job.spec.cluster) ? "GPUs" : "ranks"} of ${formatBytes(job.spec.cluster.memoryPerGpuBytes)}, ${job.spec.cluster.launcher}${job.spec.cluster.minNodes === undefined ? "" : `, with ${job.spec.cluster.minNodes} or more when nodes are lost`}`,
    `${colors.bold("created")}       ${when(job.createdAt)}${job.endedAt ? `, ended ${when(job.endedAt)}` : ""}, trace ${job.traceId}`,
  ];
  if (job.failure) lines.push(`${colors.bold("failure")}       ${colors.red(job.failure.code)}: ${job.failure.message}${job.failure.remedy ? `\n              → ${job.failure.remedy}` : ""}`);
  if (job.progress?.stage === job.state && job.progress.message !== "") lines.push(`${colors.bold("at work")}       ${job.progress.message}`);
  lines.push("", colors.bold("stages"));
  for (const transition of job.transitions) lines.push(`  ${when(transition.at)}  ${transition.from ?? "submitted"} → ${transition.to}${transition.reason ? ` (${transition.reason})` : ""}`);
  if (job.planning) {
    const { counts } = job.planning;
    const rejected = Object.entries(counts.rejected).filter(([, count]) => count > 0);
    lines.push("", colors.bold("plans"), `  ${counts.evaluated} plans, ${counts.feasible} feasible${(counts.pruned ?? 0) > 0 ? ` among those worth a look, ${counts.pruned} slower by a bound` : ""}${rejected.length > 0 ? `; rejected: ${rejected.map(([reason, count]) => `${reason} ${count}`).join(", ")}` : ""}`);
  }
  if (job.trials.length > 0) lines.push("", colors.bold("trials"), trialsTable(job.trials, colors, job.chosen));
  if (job.attempts.length > 0) {
    lines.push("", colors.bold("attempts"));
    const plans = attemptPlans(job);
    for (const attempt of job.attempts) lines.push(`  ${attempt.number}: ${attempt.state}, steps ${attempt.resumedFromStep} to ${attempt.lastStep}${plans.has(attempt.number) ? `, ${plans.get(attempt.number)}` : ""}${attempt.failure ? `, ${attempt.failure.code}: ${attempt.failure.message}` : ""}`);
  }
  const report = reportLines(job, colors);
  if (report.length > 0) lines.push("", ...report);
  return lines.join("\n");
}

export function profilesTable(profiles: readonly ProfileSummary[], colors: Colors): string {
  const short = shortIds(profiles.map(({ id }) => id));
  return table<ProfileSummary>(
    [
      { title: "ID", value: (profile) => short(profile.id) },
      { title: "NAME", value: (profile) => profile.name },
      { title: "STORED", value: (profile) => `${when(profile.createdAt)}${isGivenKey(profile.clusterKey) ? ", given" : ""}` },
      { title: "FRESH UNTIL", value: (profile) => (isGivenKey(profile.clusterKey) ? "–" : when(profile.freshUntil)) },
    ],
    profiles,
    colors,
  );
}

export function profileText(record: ProfileRecord, colors: Colors): string {
  const { profile } = record;
  const head = [
    `${colors.bold("profile")}       ${record.id} ${record.name}`,
    `${colors.bold("cluster")}       ${profile.cluster.nodes} × ${profile.cluster.gpusPerNode}, ${profile.device.name}`,
    isGivenKey(record.clusterKey) ? `${colors.bold("given")}         first used ${when(record.createdAt)}` : `${colors.bold("measured")}      ${when(record.createdAt)}, fresh until ${when(record.freshUntil)}`,
    `${colors.bold("peak")}          ${(profile.device.peakFlopsPerSecondFp32 / 1e9).toFixed(0)} GFLOP/s fp32, ${(profile.device.peakFlopsPerSecondBf16 / 1e9).toFixed(0)} bf16, ${(profile.device.memoryBandwidthBytesPerSecond / 1e9).toFixed(1)} GB/s memory`,
    `${colors.bold("modules")}       ${profile.modules.length} shapes; ${profile.overlaps.length} overlaps`,
    "",
  ];
  const curves = table(
    [
      { title: "COLLECTIVE", value: (curve) => curve.op },
      { title: "GROUP", align: "right", value: (curve) => String(curve.groupSize) },
      { title: "PLACEMENT", value: (curve) => curve.placement },
      { title: "POINTS", align: "right", value: (curve) => String(curve.points.length) },
      { title: "SMALLEST", align: "right", value: (curve) => pointText(curve.points[0]) },
      { title: "LARGEST", align: "right", value: (curve) => pointText(curve.points.at(-1)) },
    ],
    profile.collectives,
    colors,
  );
  return [...head, curves].join("\n");
}

const pointText = (point: { bytes: number; medianSeconds: number } | undefined): string => (point ? `${formatBytes(point.bytes)} in ${formatSeconds(point.medianSeconds)}` : NONE);

export function workloadsTable(workloads: readonly Workload[], colors: Colors): string {
  const short = shortIds(workloads.map(({ id }) => id));
  return table<Workload>(
    [
      { title: "ID", value: (workload) => short(workload.id) },
      { title: "NAME", value: (workload) => workload.name },
      { title: "SCHEDULE", value: (workload) => `${workload.cron} ${workload.timeZone}` },
      { title: "NEXT RUN", value: (workload) => when(workload.nextRunAt) },
      { title: "LAST RUN", value: (workload) => when(workload.lastRunAt) },
      { title: "OUTCOME", value: (workload) => (isBeingPlanned(workload) ? "queued or at work" : (workload.lastOutcome ?? NONE)) },
    ],
    workloads,
    colors,
  );
}

/** What to call something in a command that is copied into a shell. */
export const callingName = ({ id, name }: { readonly id: string; readonly name: string }): string => (/^[\w.-]+$/.test(name) ? name : id);

/** A run was asked for and has not ended. */
export const isBeingPlanned = (workload: Workload): boolean => workload.lastRunAt !== null && workload.lastOutcome === null;

/** Why a workload has no proposal. */
export function noProposalsText(workload: Workload): string {
  if (isBeingPlanned(workload)) return `no proposals yet: the run of ${when(workload.lastRunAt)} is queued or at work`;
  if (workload.lastRunAt === null) return `no proposals: it has not been planned yet${workload.nextRunAt === null ? "" : `, next ${when(workload.nextRunAt)}`}; now: internevo replan run ${callingName(workload)}`;
  return `no proposals: the last run, ${when(workload.lastRunAt)}, ${workload.lastOutcome ?? "found none"}`;
}

const changesOf = (current: Plan, proposed: Plan): string =>
  (Object.keys({ ...current, ...proposed }) as (keyof Plan)[]).filter((field) => current[field] !== proposed[field]).map((field) => `${field} ${String(current[field] ?? "unset")} → ${String(proposed[field] ?? "unset")}`).join(", ");

export function proposalsText(proposals: readonly Proposal[], colors: Colors): string {
  return table<Proposal>(
    [
      { title: "CREATED", value: (proposal) => when(proposal.createdAt) },
      { title: "PROPOSED", below: true, value: (proposal) => planLabel(proposal.proposed.plan) },
      { title: "STEP TIME", align: "right", value: (proposal) => formatSeconds(proposal.proposed.predicted.stepTimeSeconds) },
      { title: "GAIN", align: "right", value: (proposal) => (proposal.predictedGain > 0 ? percent(proposal.predictedGain) : NONE) },
      {
        title: "AGAINST THE PLAN IN USE",
        below: true,
        value: ({ current, proposed, predictedGain }) => (current === null ? "first plan: none was in use" : `${predictedGain > 0 ? "" : "the one in use does not fit any more; "}${changesOf(current.plan, proposed.plan)}`),
      },
    ],
    proposals,
    colors,
  );
}
