import type { JobDetail, StageProgress } from "@internevo/contracts";
import { isAtRest, type JobState } from "@internevo/domain";
import { Progress } from "@mantine/core";
import { formatClock, formatInteger, formatMoment, formatZone } from "../../text/format.ts";
import { QUEUED_WORD, queueWords, STAGES, startWords } from "../../text/words.ts";
import { Span } from "../moment.tsx";

type Phase = "done" | "current" | "stopped" | "ahead";

interface Stage {
  readonly state: JobState;
  readonly name: string;
  readonly about: string;
  readonly phase: Phase;
  readonly from: string | undefined;
  readonly to: string | null;
}

/** The stages with their times, from the history of the states. */
export function stagesOf(job: Pick<JobDetail, "state" | "transitions" | "createdAt">): Stage[] {
  const entered = new Map<JobState, string>();
  const left = new Map<JobState, string>();
  for (const { from, to, at } of job.transitions) {
    if (!entered.has(to)) entered.set(to, at);
    if (from !== null) left.set(from, at);
  }
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
    const phase = phaseOf();
    // A job that was let go on left the stage that it is in before.
    return { ...stage, phase, from, to: phase === "current" ? null : (left.get(stage.state) ?? null) };
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
  const message =
    queue === null
      ? said
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
            {stage.from !== undefined && (
              <span className="stage-span figures">
                <Span from={stage.from} to={stage.to} />
              </span>
            )}
          </div>
          <div className="stage-body">
            {stage.phase === "ahead" ? (
              <div className="stage-message">{stage.about}</div>
            ) : (
              <StageAdvance job={job} stage={stage} progress={progress} />
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
