import type { JobDetail, StageProgress } from "@internevo/contracts";
import { isAtRest, type JobState } from "@internevo/domain";
import { Progress } from "@mantine/core";
import { formatClock, formatInteger, formatMoment, formatZone } from "../../text/format.ts";
import { askedToGiveWayWords, QUEUED_WORD, queueWords, STAGES, startWords } from "../../text/words.ts";
import { Spans, type Period } from "../moment.tsx";

type Phase = "done" | "current" | "stopped" | "ahead";

interface Stage {
  readonly state: JobState;
  readonly name: string;
  readonly about: string;
  readonly phase: Phase;
  readonly from: string | undefined;
  /** When the job was at work in it. */
  readonly work: readonly Period[];
  /** When it stood in it, without its hosts or held. */
  readonly waits: readonly Period[];
}

const endOf = ({ to }: Period): number => (to === null ? Infinity : Date.parse(to));

/** What two periods share; undefined where that is nothing. */
function overlapOf(a: Period, b: Period): Period | undefined {
  const from = Date.parse(a.from) < Date.parse(b.from) ? b.from : a.from;
  const to = endOf(a) < endOf(b) ? a.to : b.to;
  return to !== null && Date.parse(to) <= Date.parse(from) ? undefined : { from, to };
}

/** What a period has beside others that lie in it, in order. */
function restOf(whole: Period, parts: readonly Period[]): Period[] {
  const rest: Period[] = [];
  let from: string | null = whole.from;
  for (const part of parts) {
    if (from !== null && Date.parse(part.from) > Date.parse(from)) rest.push({ from, to: part.from });
    from = part.to;
  }
  if (from !== null && (whole.to === null || Date.parse(whole.to) > Date.parse(from)))
    rest.push({ from, to: whole.to });
  return rest;
}

/** The periods that a job was in a state. */
function periodsIn(
  state: JobState,
  { transitions, createdAt }: Pick<JobDetail, "transitions" | "createdAt">,
): Period[] {
  const periods: Period[] = [];
  let from: string | undefined =
    state === "profiling" && !transitions.some(({ to }) => to === state) ? createdAt : undefined;
  for (const each of transitions) {
    if (from !== undefined && each.from === state) periods.push({ from, to: each.at });
    if (each.from === state) from = undefined;
    if (each.to === state) from = each.at;
  }
  return from === undefined ? periods : [...periods, { from, to: null }];
}

type History = Pick<JobDetail, "state" | "transitions" | "createdAt" | "holds" | "queue">;

/**
 * When a job was at work in a stage, and when it waited there. A stage that needs no hosts is at work all the time.
 */
function workIn(state: JobState, job: History): Pick<Stage, "work" | "waits"> {
  const periods = periodsIn(state, job);
  const held = periods.map((period) => job.holds.flatMap((hold) => overlapOf(period, hold) ?? []));
  if (held.every((parts) => parts.length === 0) && !(job.queue !== null && job.state === state))
    return { work: periods, waits: [] };
  return { work: held.flat(), waits: periods.flatMap((period, index) => restOf(period, held[index] ?? [])) };
}

/** The stages with their times, from the history of the states and of the hosts. */
export function stagesOf(job: History): Stage[] {
  const entered = new Map<JobState, string>();
  for (const { to, at } of job.transitions) if (!entered.has(to)) entered.set(to, at);
  if (!entered.has("profiling")) entered.set("profiling", job.createdAt);
  const ended = job.state === "cancelling" || (isAtRest(job.state) && job.state !== "succeeded");
  const reached = STAGES.filter(({ state }) => entered.has(state));
  const last = reached.at(-1)?.state;
  return STAGES.map((stage) => {
    const from = entered.get(stage.state);
    const phaseOf = (): Phase => {
      if (from === undefined) return "ahead";
      if (stage.state === job.state) return "current";
      return stage.state === last && ended ? "stopped" : "done";
    };
    return { ...stage, phase: phaseOf(), from, ...workIn(stage.state, job) };
  });
}

const PHASE_WORDS: Readonly<Record<Phase, string>> = {
  done: "done",
  current: "in progress",
  stopped: "stopped here",
  ahead: "not started",
};

function StageAdvance({
  job,
  stage,
  progress,
}: {
  job: JobDetail;
  stage: Stage;
  progress: StageProgress | undefined;
}) {
  const own = progress?.stage === stage.state ? progress : undefined;
  const countOf = (): [number | null | undefined, number | null | undefined, string] => {
    if (stage.state === "trialling") return [job.trialsDone, job.trialsTotal, "trials"];
    return stage.state === "running" ? [job.lastStep, job.steps, "steps"] : [own?.done, own?.total, ""];
  };
  const [done, total, unit] = countOf();
  const queue = stage.phase === "current" ? job.queue : null;
  const waits = queue !== null || own?.waits === true;
  // What was said before the steps began is over once they have.
  const isOver = stage.state === "running" && job.lastStep > 0 && !waits;
  const said = stage.phase === "current" && !isOver ? own?.message : undefined;
  const given =
    stage.phase === "current" && job.givesWayTo !== null ? askedToGiveWayWords(job.givesWayTo) : said;
  const message =
    queue === null
      ? given
      : `${QUEUED_WORD.toLowerCase()}: ${queueWords(queue)}; ${startWords(queue, formatMoment)}`;
  return (
    <>
      {typeof done === "number" &&
        typeof total === "number" &&
        total > 0 &&
        !(waits && stage.state === "profiling") && (
          <>
            <div className="figures stage-count">
              {formatInteger(done)} of {formatInteger(total)} {unit}
            </div>
            <Progress
              value={(100 * done) / total}
              size={5}
              aria-label={`${stage.name}: ${done} of ${total} ${unit}`}
            />
          </>
        )}
      {message !== undefined && message !== "" && (
        <div className={waits ? "stage-message text-warning" : "stage-message"}>{message}</div>
      )}
    </>
  );
}

/** Phases that have a mark of their own; the others show their number. */
const MARKS: Partial<Record<Phase, string>> = { done: "✓", stopped: "×" };

/** The way of a job through its stages. */
export function Timeline({ job, progress }: { job: JobDetail; progress: StageProgress | undefined }) {
  return (
    <ol
      className={
        ["held", "cancelled", "cancelling"].includes(job.state) ? "timeline timeline-cancelled" : "timeline"
      }
      aria-label="Stages"
    >
      {stagesOf(job).map((stage, index) => (
        <li
          key={stage.state}
          className={`stage stage-${stage.phase}`}
          data-stage={stage.state}
          data-phase={stage.phase}
          aria-current={stage.phase === "current" ? "step" : undefined}
        >
          <div className="stage-head">
            <span className="stage-mark" aria-hidden="true">
              {MARKS[stage.phase] ?? index + 1}
            </span>
            <span className="stage-name">
              {stage.name}
              <span className="visually-hidden">, {PHASE_WORDS[stage.phase]}</span>
            </span>
            {stage.work.length > 0 && (
              <span className="stage-span figures">
                <Spans of={stage.work} />
              </span>
            )}
          </div>
          <div className="stage-body">
            {stage.phase === "ahead" ? (
              <div className="stage-message">{stage.about}</div>
            ) : (
              <StageAdvance job={job} stage={stage} progress={progress} />
            )}
            {stage.waits.length > 0 && (
              <div className="stage-message figures">
                waited <Spans of={stage.waits} />
              </div>
            )}
            {stage.from !== undefined && (
              <time className="stage-time" dateTime={stage.from} title={formatMoment(stage.from)}>
                from {formatClock(stage.from)} {formatZone(stage.from)}
              </time>
            )}
          </div>
        </li>
      ))}
    </ol>
  );
}
