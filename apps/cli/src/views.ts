import {
  API_PREFIX,
  type AuditRecord,
  type JobDetail,
  type JobSummary,
  type ProfileRecord,
  type TokenRecord,
} from "@internevo/contracts";
import { isWrittenAsFolder } from "@internevo/data";
import {
  estimatedProfileWords,
  ATTEMPT_STATE_WORDS,
  choiceOf,
  choiceWords,
  DISTURBED_LEGEND,
  disturbedTrialsWords,
  FAILURE_WORDS,
  formatBandwidth,
  formatBytes,
  formatCorrelation,
  formatCounted,
  formatFlops,
  formatInteger,
  formatMeasuredSeconds,
  formatMoment,
  formatPercent,
  formatRate,
  formatSeconds,
  formatSignedPercent,
  isDisturbed,
  isGivenKey,
  JOB_STATE_WORDS,
  lowered,
  planLabel,
  qualityWords,
  positionWords,
  QUEUED_WORD,
  askedToGiveWayWords,
  queueWords,
  removalWords,
  RETENTION_WORDS,
  rejectionCounts,
  modelExtras,
  shellWord,
  startWords,
  TRIAL_STATE_WORDS,
  usesGpus,
  worldSize,
  writtenJob,
  gaveWayWords,
  planWentOverTo,
  type FailureCode,
  type JobFile,
  type JobSpec,
  type JobState,
  type Profile,
  type Report,
  type Trial,
} from "@internevo/domain";
import type { ProfileSummary } from "@internevo/client";
import { GIVEN_PROFILES } from "@internevo/cost-model";
import { countsText } from "./planning-view.ts";
import { planChangeLines } from "./plan-change-view.ts";
import { shortIds } from "./resolve.ts";
import { table, type Colors, type Column } from "./output.ts";

/** What people read of jobs, profiles and workloads: text only. */

const NONE = "–";
const when = (instant: string | null): string => (instant === null ? NONE : formatMoment(instant));

/** A state in words; its colour is that of the state. */
function stateText(state: JobState | Trial["state"], words: string, colors: Colors): string {
  const text = lowered(words);
  if (state === "succeeded") return colors.green(text);
  if (state === "failed") return colors.red(text);
  if (state === "held" || state === "cancelled" || state === "cancelling") return colors.yellow(text);
  return colors.cyan(text);
}
const jobStateText = (state: JobState, colors: Colors): string =>
  stateText(state, JOB_STATE_WORDS[state], colors);
/** A state of the history, which began with none. */
export const stateName = (state: string | null): string =>
  state === null ? "submitted" : lowered(JOB_STATE_WORDS[state as JobState] ?? state);
const failureText = (code: FailureCode): string => lowered(FAILURE_WORDS[code]);

function progressOf(job: JobSummary): string {
  const {
    done = null,
    total = null,
    waits = false,
  } = (job.progress?.stage === job.state && job.progress) || {};
  if (job.queue) return positionWords(job.queue);
  if (waits) return "waits";
  switch (job.state) {
    case "profiling":
    case "planning":
      return done !== null && total !== null && total > 0
        ? `${job.state === "profiling" ? "run" : "batch"} ${done}/${total}`
        : NONE;
    case "trialling":
      return `trial ${job.trialsDone}/${job.trialsTotal}`;
    case "running":
    case "succeeded":
      return `step ${formatInteger(job.lastStep)}/${formatInteger(job.steps)}`;
    case "held":
    case "failed":
    case "cancelled":
      return job.lastStep > 0 ? `step ${formatInteger(job.lastStep)}/${formatInteger(job.steps)}` : NONE;
    case "cancelling":
      return NONE;
  }
}

/** A job that waits for its hosts is queued, whatever stage it is in. */
const listedState = (job: JobSummary, colors: Colors): string =>
  job.queue ? colors.yellow(lowered(QUEUED_WORD)) : jobStateText(job.state, colors);

/** Characters of a name in a table; JSON has the whole. */
export const MOST_OF_NAME = 32;

export function jobsTable(jobs: readonly JobSummary[], colors: Colors): string {
  const short = shortIds(jobs.map(({ id }) => id));
  const columns: Column<JobSummary>[] = [
    { title: "ID", value: (job) => short(job.id) },
    { title: "NAME", most: MOST_OF_NAME, value: (job) => job.name },
    { title: "STATE", value: (job) => listedState(job, colors) },
    { title: "PROGRESS", value: progressOf },
    {
      title: "LOSS",
      align: "right",
      value: (job) => (job.lastLoss === null ? NONE : job.lastLoss.toFixed(4)),
    },
    { title: "MODEL", spare: 3, most: MOST_OF_NAME, value: (job) => job.model },
    { title: "CLUSTER", spare: 1, most: MOST_OF_NAME, value: (job) => job.cluster },
    { title: "PROJECT", spare: 5, most: MOST_OF_NAME, value: (job) => job.project },
    { title: "OWNER", spare: 4, most: MOST_OF_NAME, value: (job) => job.owner ?? NONE },
    { title: "CREATED", spare: 2, value: (job) => when(job.createdAt) },
  ];
  return table(columns, jobs, colors);
}

const stepError = (trial: Trial): number | undefined =>
  trial.measured
    ? (trial.candidate.predicted.stepTimeSeconds - trial.measured.stepTimeSeconds) /
      trial.measured.stepTimeSeconds
    : undefined;
const memoryError = (trial: Trial): number | undefined =>
  trial.measured
    ? (trial.candidate.predicted.peakMemoryBytes - trial.measured.peakMemoryBytes) /
      trial.measured.peakMemoryBytes
    : undefined;

const errorText = (error: number | undefined): string =>
  error === undefined ? NONE : formatSignedPercent(error);

/** Predicted beside measured, best predicted first, with the place by measurement. */
export function trialsTable(
  trials: readonly Trial[],
  colors: Colors,
  chosen: JobDetail["chosen"] = null,
): string {
  const sorted = [...trials].sort((a, b) => a.candidate.rank - b.candidate.rank);
  const times = trials.flatMap((trial) => trial.measured?.stepTimeSeconds ?? []).sort((a, b) => a - b);
  const disturbed = trials.some(({ measured }) => measured && isDisturbed(measured));
  // Figures stay below one another.
  const column = (text: string): string => (disturbed && !text.endsWith("*") ? `${text}  ` : text);
  const measured =
    (show: (trial: Trial & { measured: NonNullable<Trial["measured"]> }) => string) => (trial: Trial) =>
      trial.measured ? show({ ...trial, measured: trial.measured }) : NONE;
  const columns: Column<Trial>[] = [
    { title: "RANK", align: "right", value: (trial) => `#${trial.candidate.rank}` },
    { title: "PLAN", below: true, value: (trial) => planLabel(trial.candidate.plan) },
    {
      title: "STEP pred.",
      align: "right",
      value: (trial) => formatSeconds(trial.candidate.predicted.stepTimeSeconds),
    },
    {
      title: "meas.",
      align: "right",
      value: measured((trial) => column(formatMeasuredSeconds(trial.measured))),
    },
    {
      title: "place",
      align: "right",
      value: measured((trial) => String(times.indexOf(trial.measured.stepTimeSeconds) + 1)),
    },
    { title: "error", align: "right", value: (trial) => errorText(stepError(trial)) },
    {
      title: "TOKENS/GPU/S pred.",
      align: "right",
      spare: 3,
      value: (trial) => formatRate(trial.candidate.predicted.tokensPerGpuPerSecond),
    },
    {
      title: "meas.",
      align: "right",
      spare: 3,
      value: measured((trial) => formatRate(trial.measured.tokensPerGpuPerSecond)),
    },
    {
      title: "MEMORY pred.",
      align: "right",
      spare: 2,
      value: (trial) => formatBytes(trial.candidate.predicted.peakMemoryBytes),
    },
    {
      title: "meas.",
      align: "right",
      spare: 2,
      value: measured((trial) => formatBytes(trial.measured.peakMemoryBytes)),
    },
    { title: "error", align: "right", spare: 2, value: (trial) => errorText(memoryError(trial)) },
    {
      title: "RESULT",
      value: (trial) => {
        if (trial.failure) return colors.red(failureText(trial.failure.code));
        return trial.candidate.rank === chosen?.rank
          ? colors.green("chosen")
          : stateText(trial.state, TRIAL_STATE_WORDS[trial.state], colors);
      },
    },
  ];
  const rows = table(columns, sorted, colors);
  return disturbed ? `${rows}\n${DISTURBED_LEGEND}` : rows;
}

export function reportLines(job: JobDetail, colors: Colors): string[] {
  const { report } = job;
  const lines: string[] = [];
  if (job.chosen)
    lines.push(
      `${colors.bold("chosen plan")}   ${planLabel(job.chosen.plan)} (rank #${job.chosen.rank} by prediction)`,
    );
  const now = planWentOverTo(job);
  if (now !== null)
    lines.push(
      `${colors.bold(report ? "trained with" : "trains with")}  ${report ? "" : " "}${planLabel(now)}, which it went over to`,
    );
  if (!report && job.lastValidation)
    lines.push(
      `${colors.bold("validation")}    ${job.lastValidation.loss.toFixed(4)} nats a token of held-out data after step ${formatInteger(job.lastValidation.step)}`,
    );
  if (!report) return lines;
  const [trained, loss, predictions] = reportWords(report);
  const beats =
    report.unigramEntropyNats === null ? undefined : report.finalLossNats < report.unigramEntropyNats;
  lines.push(`${colors.bold("trained")}       ${trained}`);
  const judged = beats ? colors.green(loss) : colors.red(loss);
  lines.push(`${colors.bold("final loss")}    ${beats === undefined ? loss : judged}`);
  if (report.validation) lines.push(`${colors.bold("validation")}    ${validationWords(report.validation)}`);
  lines.push(`${colors.bold("predictions")}   ${predictions}`);
  for (const disturbance of report.disturbances ?? [])
    lines.push(`${colors.bold("disturbed")}     ${colors.yellow(disturbance)}`);
  return lines;
}

/** The validation losses of a training that is complete. */
const validationWords = ({
  lossNats,
  best,
  evaluations,
  seconds,
}: NonNullable<Report["validation"]>): string =>
  `${lossNats.toFixed(4)} nats a token of held-out data at the end, lowest ${best.lossNats.toFixed(4)} after step ${formatInteger(best.step)}; ${formatCounted(evaluations, "evaluation")} in ${formatSeconds(seconds)}`;

/** A report in words: what was trained, the loss that it ended with, how good the predictions were. */
export function reportWords(report: Report): [trained: string, loss: string, predictions: string] {
  const entropy = report.unigramEntropyNats;
  const verdict =
    entropy === null
      ? ""
      : `, ${report.finalLossNats < entropy ? "" : "not "}below the unigram entropy of the text, ${entropy.toFixed(4)}`;
  const share = (value: number | null): string => (value === null ? NONE : formatPercent(value));
  return [
    `${formatCounted(report.steps, "step")} in ${formatCounted(report.attempts, "attempt")}, ${formatSeconds(report.meanStepTimeSeconds)} a step, ${formatRate(report.tokensPerGpuPerSecond)} tokens/s a rank`,
    `${report.finalLossNats.toFixed(4)} nats a token${verdict} (mean of the last tenth of the steps)`,
    `mean error of step time ${share(report.timeErrorOverTrials)}, of peak memory ${share(report.memoryErrorOverTrials)}; Kendall's τ ${report.kendallTauOverTrials === null ? NONE : formatCorrelation(report.kendallTauOverTrials)}`,
  ];
}

/** Which plan the trials chose and how sure that is, once they are over. */
function choiceLines({ trials, chosen, report }: JobDetail, colors: Colors): string[] {
  const choice = chosen === null ? undefined : choiceOf(trials);
  // Jobs of earlier versions were trained with the fastest, whatever tied with it.
  if (!choice || choice.chosen.rank !== chosen?.rank) return [];
  // The report says it too.
  const disturbed = report?.disturbances ? undefined : disturbedTrialsWords(choice);
  return ["", choiceWords(choice), ...(disturbed === undefined ? [] : [colors.yellow(disturbed)])];
}

/** Nodes and plan of each attempt, where they are not the same for all: nodes were lost. */
function attemptPlans({ attempts, spec }: JobDetail): ReadonlyMap<number, string> {
  const labels = attempts.flatMap(({ number, plan }) =>
    plan
      ? [
          [
            number,
            `${worldSize(plan) / spec.cluster.gpusPerNode} of ` +
              `${formatCounted(spec.cluster.nodes, "node")}, ${planLabel(plan)}`,
          ] as const,
        ]
      : [],
  );
  return new Map(new Set(labels.map(([, label]) => label)).size > 1 ? labels : []);
}

/** A job for programs: its `spec` as a job file, which can be submitted again as it is. */
export const jobDocument = <T extends { readonly spec: JobSpec }>(
  job: T,
): Omit<T, "spec"> & { readonly spec: JobFile } => ({ ...job, spec: writtenJob(job.spec) });

/** Where a job's files are, once ranks have trained, and how to take the weights from there. */
function filesLines({ files, attempts, trials, spec }: JobDetail, colors: Colors): string[] {
  const lines: string[] = [];
  if (files && attempts.length > 0 && spec.checkpointing !== null) {
    lines.push(`${colors.bold("checkpoints")}   ${files.checkpoints}`);
    if (isWrittenAsFolder(spec.model))
      lines.push(
        `${colors.bold("weights")}       internevo checkpoint export ` +
          `${shellWord(files.checkpoints)} FOLDER  (the latest, as a Hugging Face folder)`,
      );
  }
  if (files && spec.timeline && (trials.length > 0 || attempts.length > 0))
    lines.push(`${colors.bold("timelines")}     ${files.timelines}`);
  return lines;
}

export function jobText(job: JobDetail, colors: Colors): string {
  /** Nothing, or what the line of the failure says anyway. */
  const isTold = (reason: string | null): boolean =>
    reason === null || reason === "" || reason === job.failure?.message;
  const lines = [
    `${colors.bold("job")}           ${job.id} ${job.name}`,
    `${colors.bold("state")}         ${[`${jobStateText(job.state, colors)}${isTold(job.reason) ? "" : ` (${job.reason ?? ""})`}`, progressOf(job)].filter((part) => part !== NONE).join(", ")}`,
    `${colors.bold("model")}         ${[job.model, ...modelExtras(job.spec.model)].join(", ")}, ${formatCounted(job.spec.sequenceLengthTokens, "token")} a sequence, ${formatInteger(job.spec.globalBatchTokens)} a step, ${job.spec.precision}`,
    `${colors.bold("cluster")}       ${job.cluster}: ${job.spec.cluster.nodes} × ${job.spec.cluster.gpusPerNode} ${usesGpus(job.spec.cluster) ? "GPUs" : "ranks"} of ${formatBytes(job.spec.cluster.memoryPerGpuBytes)}${job.spec.headroom === undefined ? "" : `, ${job.spec.headroom} of it kept free`}, ${job.spec.cluster.launcher}${job.spec.cluster.minNodes === undefined ? "" : `, with ${job.spec.cluster.minNodes} or more when nodes are lost`}`,
    `${colors.bold("created")}       ${when(job.createdAt)}${job.owner === null ? "" : ` by ${job.owner}`} in project ${job.project}${job.endedAt ? `, ended ${when(job.endedAt)}` : ""}, trace ${job.traceId}`,
  ];
  const labels = Object.entries(job.labels ?? {}).map(([name, value]) => `${name}=${value}`);
  if (job.preemptible)
    lines.push(
      `${colors.bold("preemptible")}   gives its hosts up where a job of higher priority waits for them`,
    );
  if (labels.length > 0) lines.push(`${colors.bold("labels")}        ${labels.join(", ")}`);
  if (job.keep === true) lines.push(`${colors.bold("kept")}          exempt from retention`);
  for (const removal of job.removed ?? [])
    lines.push(
      `${colors.bold("gone")}          ${lowered(RETENTION_WORDS[removal.kind])}: ${removalWords(removal)}`,
    );
  if (job.failure)
    lines.push(
      `${colors.bold("failure")}       ${colors.red(failureText(job.failure.code))}: ${job.failure.message}${job.failure.remedy ? `\n              → ${job.failure.remedy}` : ""}`,
    );
  if (job.queue)
    lines.push(
      `${colors.bold("queue")}         ${queueWords(job.queue)}, since ${when(job.queue.waitingSince)}; ${startWords(job.queue, when)}${job.priority === "normal" ? "" : `, priority ${job.priority}`}`,
    );
  else if (job.givesWayTo !== null)
    lines.push(`${colors.bold("hosts")}         ${askedToGiveWayWords(job.givesWayTo)}`);
  else if (job.progress?.stage === job.state && job.progress.message !== "")
    lines.push(`${colors.bold("at work")}       ${job.progress.message}`);
  lines.push("", colors.bold("stages"));
  for (const transition of job.transitions)
    lines.push(
      `  ${when(transition.at)}  ${stateName(transition.from)} → ${stateName(transition.to)}${isTold(transition.reason) ? "" : ` (${transition.reason ?? ""})`}`,
    );
  if (job.planning) {
    const { counts } = job.planning;
    const rejected = rejectionCounts(counts.rejected);
    lines.push(
      "",
      colors.bold("plans"),
      `  ${countsText(counts)}${rejected === "" ? "" : `; rejected: ${rejected}`}`,
    );
  }
  if (job.trials.length > 0)
    lines.push(
      "",
      colors.bold("trials"),
      trialsTable(job.trials, colors, job.chosen),
      ...choiceLines(job, colors),
    );
  if (job.attempts.length > 0) {
    lines.push("", colors.bold("attempts"));
    const plans = attemptPlans(job);
    for (const attempt of job.attempts)
      lines.push(
        `  ${attempt.number}: ${lowered(ATTEMPT_STATE_WORDS[attempt.state])}, steps ${formatInteger(attempt.resumedFromStep)} to ${formatInteger(attempt.lastStep)}${plans.has(attempt.number) ? `, ${plans.get(attempt.number)}` : ""}${attempt.failure ? `, ${failureText(attempt.failure.code)}${isTold(attempt.failure.message) ? "" : `: ${attempt.failure.message}`}` : ""}${attempt.gaveWayTo === undefined ? "" : `, ${gaveWayWords(attempt.gaveWayTo)}`}`,
      );
  }
  if (job.planChange)
    lines.push("", colors.bold("plan change"), ...planChangeLines(job.planChange).map((line) => `  ${line}`));
  const report = reportLines(job, colors);
  if (report.length > 0) lines.push("", ...report);
  const files = filesLines(job, colors);
  if (files.length > 0) lines.push("", ...files);
  return lines.join("\n");
}

/** Stored profiles, and behind them those that are shipped: these have a name only. */
export function profilesTable(profiles: readonly ProfileSummary[], colors: Colors): string {
  const short = shortIds(profiles.map(({ id }) => id));
  const stored =
    (show: (profile: ProfileSummary) => string, shipped = NONE) =>
    (profile: ProfileSummary | string): string =>
      typeof profile === "string" ? shipped : show(profile);
  return table<ProfileSummary | string>(
    [
      { title: "ID", value: stored(({ id }) => short(id)) },
      {
        title: "NAME",
        most: 2 * MOST_OF_NAME,
        value: (profile) => (typeof profile === "string" ? profile : profile.name),
      },
      { title: "PROJECT", spare: 2, value: stored(({ project }) => project ?? "all") },
      {
        title: "STORED",
        value: stored(
          ({ createdAt, clusterKey }) => `${when(createdAt)}${isGivenKey(clusterKey) ? ", given" : ""}`,
          "shipped",
        ),
      },
      {
        title: "FRESH UNTIL",
        value: stored(({ clusterKey, freshUntil }) => (isGivenKey(clusterKey) ? NONE : when(freshUntil))),
      },
      {
        title: "MEASURED",
        value: stored(({ estimated, quality }) => {
          if (estimated) return colors.yellow("estimated");
          if (quality === null) return NONE;
          return quality.verdict === "noisy"
            ? colors.yellow(`noisy: ${quality.noisyPoints} of ${quality.points} points`)
            : "quiet";
        }),
      },
    ],
    [...profiles, ...GIVEN_PROFILES],
    colors,
  );
}

/** Where a stored profile is from, and whether jobs use it. */
function storedLines(record: ProfileRecord, colors: Colors): string[] {
  return [
    isGivenKey(record.clusterKey)
      ? `${colors.bold("given")}         first used ${when(record.createdAt)}${record.project === null ? "" : ` in project ${record.project}`}`
      : `${colors.bold("measured")}      ${when(record.createdAt)}, fresh until ${when(record.freshUntil)}`,
    ...(record.discardedAt === null
      ? []
      : [
          `${colors.bold("discarded")}     ${colors.yellow(`${when(record.discardedAt)}: no new job uses it`)}`,
        ]),
  ];
}

/** What follows from discarding a profile. @param left the other profiles of its cluster, newest first. */
export function discardedWords(
  { clusterKey, createdAt }: Pick<ProfileRecord, "clusterKey" | "createdAt">,
  left: readonly Pick<ProfileSummary, "id" | "name" | "createdAt">[],
): string {
  if (isGivenKey(clusterKey)) return "no new job can name it";
  const [newest] = left;
  if (newest === undefined) return "the next job of its cluster measures it again";
  if (Date.parse(newest.createdAt) > Date.parse(createdAt))
    return `jobs of its cluster go on with the newer ${newest.name} (${newest.id})`;
  return (
    "the next job of its cluster measures it again. An older profile of the cluster is left, " +
    `${newest.name} (${newest.id}): a job uses it only if it names it (cluster.profile), and ` +
    "`internevo plan` without --profile takes it"
  );
}

/** @param name of a shipped profile */
export const shippedProfileText = (name: string, profile: Profile, colors: Colors): string =>
  profileLines(
    profile,
    estimatedProfileWords(profile) === undefined ? `${name}, shipped: ${profile.name}` : name,
    [],
    colors,
  );

export const profileText = (record: ProfileRecord, colors: Colors): string =>
  profileLines(record.profile, `${record.id} ${record.name}`, storedLines(record, colors), colors);

function profileLines(profile: Profile, name: string, stored: readonly string[], colors: Colors): string {
  const head = [
    `${colors.bold("profile")}       ${name}`,
    ...(estimatedProfileWords(profile) === undefined
      ? []
      : [`${colors.bold("estimated")}     ${estimatedProfileWords(profile)}`]),
    `${colors.bold("cluster")}       ${profile.cluster.nodes} × ${profile.cluster.gpusPerNode}, ${profile.device.name}`,
    ...stored,
    `${colors.bold("peak")}          ${formatFlops(profile.device.peakFlopsPerSecondFp32)} fp32, ${formatFlops(profile.device.peakFlopsPerSecondBf16)} bf16, ${formatBandwidth(profile.device.memoryBandwidthBytesPerSecond)} memory`,
    `${colors.bold("modules")}       ${formatCounted(profile.modules.length, "shape")}; ` +
      `${formatCounted(profile.overlaps.length, "overlap")}`,
    ...(profile.quality
      ? qualityWords(profile.quality).map(
          (words, index) =>
            `${index === 0 ? colors.bold("quality".padEnd(14)) : " ".repeat(14)}${profile.quality?.verdict === "noisy" ? colors.yellow(words) : words}`,
        )
      : []),
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

const pointText = (point: { bytes: number; medianSeconds: number } | undefined): string =>
  point ? `${formatBytes(point.bytes)} in ${formatSeconds(point.medianSeconds)}` : NONE;

export function tokensTable(tokens: readonly TokenRecord[], colors: Colors): string {
  const short = shortIds(tokens.map(({ id }) => id));
  return table<TokenRecord>(
    [
      { title: "ID", value: ({ id }) => short(id) },
      { title: "NAME", value: ({ name }) => name },
      { title: "KIND", value: ({ kind }) => kind },
      { title: "ROLE", value: ({ role }) => role },
      { title: "PROJECT", value: ({ project }) => project ?? "all" },
      { title: "CREATED", value: ({ createdAt }) => when(createdAt) },
      { title: "EXPIRES", value: ({ expiresAt }) => when(expiresAt) },
      { title: "LAST USED", value: ({ lastUsedAt }) => when(lastUsedAt) },
    ],
    tokens,
    colors,
  );
}

export function auditTable(rows: readonly AuditRecord[], colors: Colors): string {
  const resultOf = ({ status, details }: AuditRecord): string => {
    const { code, repeated } = (details ?? {}) as { code?: string; repeated?: number };
    const said = [code, repeated === undefined ? undefined : `${repeated} more`].filter(Boolean).join(", ");
    const result = `${status}${said === "" ? "" : ` ${said}`}`;
    return status >= 400 ? colors.red(result) : result;
  };
  return table<AuditRecord>(
    [
      { title: "WHEN", value: ({ at }) => when(at) },
      { title: "WHO", most: MOST_OF_NAME, value: ({ actor }) => actor },
      { title: "ROLE", spare: 2, value: ({ role }) => role },
      { title: "PROJECT", spare: 3, value: ({ project }) => project ?? NONE },
      { title: "ACTION", value: ({ action }) => action.replace(` ${API_PREFIX}/`, " /") },
      { title: "ABOUT", spare: 1, value: ({ target }) => target ?? NONE },
      { title: "RESULT", value: resultOf },
    ],
    rows,
    colors,
  );
}

/** What to call something in a command that is copied into a shell. */
export const callingName = ({ id, name }: { readonly id: string; readonly name: string }): string =>
  /^[\w.-]+$/.test(name) ? name : id;
