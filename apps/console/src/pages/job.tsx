import type { JobDetail } from "@internevo/contracts";
import {
  choiceOf,
  disturbedTrialsWords,
  isResumable,
  isTerminal,
  modelExtras,
  usesGpus,
  writtenJob,
  planWentOverTo,
} from "@internevo/domain";
import { Alert, Code, Text } from "@mantine/core";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { stringify } from "yaml";
import { Artifacts } from "../components/job/artifacts.tsx";
import { Attempts } from "../components/job/attempts.tsx";
import { CancelButton } from "../components/job/cancel-button.tsx";
import { ResumeButton } from "../components/job/resume-button.tsx";
import { FinalReport } from "../components/job/final-report.tsx";
import { PlanChangeSection } from "../components/job/plan-change.tsx";
import { PrioritySelect } from "../components/job/priority-select.tsx";
import { LogTail } from "../components/job/log-tail.tsx";
import { Timeline } from "../components/job/timeline.tsx";
import { Training } from "../components/job/training.tsx";
import { ButtonTo, LinkTo } from "../components/links.tsx";
import { Moment, Span } from "../components/moment.tsx";
import { Facts, Page, Section } from "../components/page.tsx";
import { AskPlan } from "../components/plan/ask-plan.tsx";
import { ComparePlans } from "../components/plan/compare-plans.tsx";
import { MemoryChart, TimeChart } from "../components/plan/plan-charts.tsx";
import { PlanTable } from "../components/plan/plan-table.tsx";
import { PlanText } from "../components/plan/plan-text.tsx";
import { Rejections } from "../components/plan/rejections.tsx";
import { JobStateBadge } from "../components/state-badge.tsx";
import { Failed, Loading } from "../components/states.tsx";
import type { Subject } from "../data/advice.ts";
import { lastMade, type JobFeed } from "../data/job-feed.ts";
import { JOB_PARTS, type JobPart } from "../data/job-parts.ts";
import { useJobFeed } from "../data/use-job-feed.ts";
import { planRows, reasonOfChoice, type PlanRow } from "../data/plan-rows.ts";
import { isActive, useJob } from "../data/queries.ts";
import { mayActAs, useSession } from "../session/session.tsx";
import { formatBytes, formatCounted, formatInteger, formatTokens, sentence } from "../text/format.ts";
import { explainPlan, FAILURE_WORDS } from "../text/words.ts";

const route = getRouteApi("/jobs/$jobId");
const back = (
  <LinkTo to="/jobs" size="sm">
    ← Jobs
  </LinkTo>
);

function Ending({ job }: { job: JobDetail }) {
  if (job.failure) {
    return (
      <Alert color={job.state === "held" ? "yellow" : "red"} title={FAILURE_WORDS[job.failure.code]}>
        {job.failure.rank !== undefined && `Rank ${job.failure.rank}: `}
        {sentence(job.failure.message)}
        {job.failure.remedy !== undefined && (
          <Text size="sm" fw={600} mt={4}>
            What to do: {sentence(job.failure.remedy)}
          </Text>
        )}
      </Alert>
    );
  }
  // The reason of another state is what came out of the stage before it, and is told there.
  if ((job.state === "cancelled" || job.state === "cancelling") && job.reason !== null && job.reason !== "")
    return (
      <Alert color="gray" variant="light">
        {job.reason}
      </Alert>
    );
  return null;
}

function ChosenPlan({ job, rows }: { job: JobDetail; rows: readonly PlanRow[] }) {
  if (!job.chosen) return null;
  const choice = choiceOf(job.trials);
  const reason = reasonOfChoice(rows, choice);
  // The report says it too.
  const disturbed = choice && !job.report?.disturbances ? disturbedTrialsWords(choice) : undefined;
  const wentOverTo = planWentOverTo(job);
  return (
    <Section title="Chosen plan">
      <div className="chosen-plan">
        <PlanText plan={job.chosen.plan} />
        {reason !== undefined && (
          <Text size="sm" fw={600}>
            {reason}
          </Text>
        )}
        {disturbed !== undefined && (
          <Alert color="yellow" variant="light" role="alert">
            {sentence(disturbed)}
          </Alert>
        )}
        {explainPlan(job.chosen.plan).map((sentence) => (
          <Text key={sentence} size="sm">
            {sentence}
          </Text>
        ))}
        {wentOverTo !== null && (
          <Alert color="blue" variant="light" title={job.report ? "It trained with" : "It trains with"}>
            <PlanText plan={wentOverTo} /> It went over to this plan.
          </Alert>
        )}
      </div>
    </Section>
  );
}

/** What a part has to show when it comes. */
const NoPlansYet = () => (
  <Text size="sm">Plans come when the cluster is measured and they are searched.</Text>
);

function Plans({ job, rows }: { job: JobDetail; rows: PlanRow[] }) {
  const { planning, id } = job;
  const subject = useMemo((): Subject => ({ jobId: id }), [id]);
  // Other plans, other choices; a trial's news leaves them as they are.
  const rowsKey = rows.map(({ key }) => key).join("\n");
  if (!planning) return <NoPlansYet />;
  return (
    <>
      {rows.length > 0 && (
        <>
          <Section
            title="Plans: predicted beside measured"
            folded={formatCounted(rows.length, "plan")}
            about={
              <>
                The best plans by prediction, each run for real. Press a rank for all that is known of that
                plan<span className="wide-only">; press a heading to sort</span>.
              </>
            }
          >
            <PlanTable rows={rows} withMeasured={job.trials.length > 0} label="Plans" />
          </Section>
          {rows.length > 1 && (
            <Section
              title="Compare two plans"
              folded
              about="What one saves and the other pays, term by term, by prediction."
            >
              <ComparePlans key={rowsKey} rows={rows} subject={subject} />
            </Section>
          )}
          <Section
            title="Ask about a plan"
            folded
            about="Why it is not chosen, what its ranks’ memory holds, and its configuration for other frameworks."
          >
            <AskPlan
              key={rowsKey}
              rows={rows}
              subject={subject}
              jobName={job.name}
              limitBytes={planning.memoryLimitBytes}
            />
          </Section>
        </>
      )}
      <Section
        title="Why plans were rejected"
        folded={`${formatInteger(planning.counts.evaluated - planning.counts.feasible - (planning.counts.pruned ?? 0))} of ${formatInteger(planning.counts.evaluated)}`}
      >
        <Rejections planning={planning} />
      </Section>
    </>
  );
}

function MemoryAndTime({ job, rows }: { job: JobDetail; rows: PlanRow[] }) {
  const { planning } = job;
  if (!planning) return <NoPlansYet />;
  if (rows.length === 0) return <Text size="sm">No plan fits: see why under Plans.</Text>;
  return (
    <>
      <Section
        title="Memory by line"
        about={`Predicted for the fullest rank, against the ${formatBytes(planning.memoryLimitBytes)} that a rank may use.`}
      >
        <MemoryChart rows={rows} limitBytes={planning.memoryLimitBytes} />
      </Section>
      <Section title="Where the time goes" about="Predicted time of one step by cause.">
        <TimeChart rows={rows} />
      </Section>
    </>
  );
}

/** Where what the job writes lies, once ranks have trained, and how its weights are taken from there. */
function jobFiles({ files, attempts, trials, spec }: JobDetail) {
  if (!files) return [];
  const hasCheckpoints = attempts.length > 0 && spec.checkpointing !== null;
  const hasTimelines = spec.timeline !== undefined && (trials.length > 0 || attempts.length > 0);
  return [
    ...(hasCheckpoints
      ? [
          { name: "Checkpoints", value: <Code>{files.checkpoints}</Code>, wide: true },
          {
            name: "Weights",
            value: <Code>npx internevo checkpoint export {files.checkpoints} FOLDER</Code>,
            wide: true,
          },
        ]
      : []),
    ...(hasTimelines ? [{ name: "Timelines", value: <Code>{files.timelines}</Code>, wide: true }] : []),
  ];
}

function JobFacts({ job }: { job: JobDetail }) {
  return (
    <Section title="Job">
      <Facts
        items={[
          {
            name: "Model",
            value: job.model,
            note: [
              formatCounted(job.spec.model.layers, "layer"),
              `hidden ${formatInteger(job.spec.model.hiddenSize)}`,
              formatCounted(job.spec.model.heads, "head"),
              ...modelExtras(job.spec.model),
            ].join(", "),
          },
          { name: "Vocabulary", value: `${formatInteger(job.spec.model.vocabularySize)} tokens` },
          { name: "Sequence", value: `${formatTokens(job.spec.sequenceLengthTokens)} tokens` },
          { name: "Batch", value: `${formatTokens(job.spec.globalBatchTokens)} tokens`, note: "a step" },
          { name: "Precision", value: job.spec.precision },
          {
            name: "Cluster",
            value: job.cluster,
            note: `${job.spec.cluster.nodes} × ${job.spec.cluster.gpusPerNode} ${usesGpus(job.spec.cluster) ? "GPUs" : "ranks"} of ${formatBytes(job.spec.cluster.memoryPerGpuBytes)}${job.spec.cluster.minNodes === undefined ? "" : `; ${job.spec.cluster.minNodes} nodes or more when some are lost`}`,
          },
          {
            name: "Profile",
            value:
              job.profileId === null ? (
                "–"
              ) : (
                <LinkTo to="/clusters/$profileId" params={{ profileId: job.profileId }}>
                  {job.planning?.profile ?? "measured"}
                </LinkTo>
              ),
          },
          ...jobFiles(job),
          { name: "Identity", value: <Code>{job.id}</Code>, wide: true },
          { name: "Trace", value: <Code>{job.traceId}</Code>, wide: true },
        ]}
      />
      <details className="as-table">
        <summary>The whole job, as it was resolved</summary>
        <pre className="document" tabIndex={0}>
          {stringify(writtenJob(job.spec))}
        </pre>
      </details>
    </Section>
  );
}

function Overview({ job, feed, rows }: { job: JobDetail; feed: JobFeed; rows: PlanRow[] }) {
  const { steps } = feed;
  return (
    <>
      {job.report && (
        <Section title="Report">
          <FinalReport report={job.report} />
        </Section>
      )}
      <ChosenPlan job={job} rows={rows} />
      {(job.attempts.length > 0 || steps.length > 0) && (
        <Section title="Training">
          <Training job={job} steps={steps} validations={feed.validations} />
        </Section>
      )}
      {job.attempts.length > 0 && (
        <Section
          title="Attempts"
          folded={String(job.attempts.length)}
          about={
            job.attempts.length === 1
              ? "No restart."
              : `${formatCounted(job.attempts.length - 1, "restart")} from the last checkpoint.`
          }
        >
          <Attempts job={job} />
        </Section>
      )}
      <PlanChangeSection job={job} rows={rows} />
    </>
  );
}

function PartLinks({ jobId, shown }: { jobId: string; shown: JobPart }) {
  return (
    <nav aria-label="Parts of the job" className="job-parts">
      {(Object.keys(JOB_PARTS) as JobPart[]).map((part) => (
        <Link
          key={part}
          to="/jobs/$jobId"
          params={{ jobId }}
          search={part === "overview" ? {} : { part }}
          resetScroll={false}
          className={part === shown ? "nav-link nav-link-active" : "nav-link"}
          aria-current={part === shown ? "page" : undefined}
        >
          {JOB_PARTS[part]}
        </Link>
      ))}
    </nav>
  );
}

function JobBody({ job, feed, part }: { job: JobDetail; feed: JobFeed; part: JobPart }) {
  const { steps } = feed;
  const rows = useMemo(
    () => planRows(job.planning, job.trials, job.chosen),
    [job.planning, job.trials, job.chosen],
  );
  const lastStep = useMemo(() => lastMade(steps)?.step, [steps]) ?? job.lastStep;
  const live = lastStep === job.lastStep ? job : { ...job, lastStep };
  return (
    <>
      <Timeline job={live} progress={feed.progress} />
      <Ending job={job} />
      <PartLinks jobId={job.id} shown={part} />
      {part === "overview" && <Overview job={live} feed={feed} rows={rows} />}
      {part === "plans" && <Plans job={job} rows={rows} />}
      {part === "memory" && <MemoryAndTime job={job} rows={rows} />}
      {part === "log" && (
        <Section title="Log" aside={formatCounted(feed.log.length, "line")}>
          <LogTail lines={feed.log} ended={feed.ended} />
        </Section>
      )}
      {part === "files" && (
        <Section title="Files" about="What the job leaves. A folder, such as a checkpoint, is a tar archive.">
          <Artifacts jobId={job.id} isActive={isActive(job.state)} />
        </Section>
      )}
      {part === "configuration" && <JobFacts job={job} />}
    </>
  );
}

function JobView({ jobId, part }: { jobId: string; part: JobPart }) {
  const session = useSession();
  const query = useJob(jobId);
  const job = query.data;
  const feed = useJobFeed(jobId, job?.state);
  if (!job) {
    return (
      <Page title="Job" above={back}>
        {query.isError ? (
          <Failed what="job" error={query.error} onRetry={() => void query.refetch()} />
        ) : (
          <Loading label="job" rows={6} />
        )}
      </Page>
    );
  }
  return (
    <Page
      title={job.name}
      above={back}
      actions={
        <>
          {job.planning && (
            <ButtonTo to="/what-if" search={{ job: job.id }} variant="default">
              What if…
            </ButtonTo>
          )}
          <ButtonTo to="/compare" search={{ job: [job.id] }} variant="default">
            Compare…
          </ButtonTo>
          <ButtonTo to="/submit" search={{ job: job.id }} variant="default">
            Submit again…
          </ButtonTo>
          {job.queue !== null && mayActAs(session, "operator") && <PrioritySelect job={job} />}
          {isResumable(job.state) && mayActAs(session, "operator") && <ResumeButton job={job} />}
          {!isTerminal(job.state) && mayActAs(session, "operator") && <CancelButton job={job} />}
        </>
      }
      lead={
        <div className="job-lead">
          <span aria-live="polite">
            <JobStateBadge state={job.state} isQueued={job.queue !== null} />
          </span>
          <span>
            submitted <Moment at={job.createdAt} both />
            {job.owner !== null && ` by ${job.owner}`} in project {job.project}
          </span>
          {job.preemptible && (
            <span title="It gives its hosts up where a job of higher priority waits for them, and goes on later.">
              preemptible
            </span>
          )}
          {Object.entries(job.labels).map(([name, value]) => (
            <Link
              key={name}
              to="/jobs"
              search={{ label: `${name}=${value}` }}
              className="plain-link"
              aria-label={`Jobs with label ${name}=${value}`}
            >
              {name}={value}
            </Link>
          ))}
          <span>
            {job.endedAt === null ? "for " : "took "}
            <Span from={job.createdAt} to={job.endedAt} />
          </span>
        </div>
      }
    >
      <JobBody job={job} feed={feed} part={part} />
    </Page>
  );
}

export function JobPage() {
  const { jobId } = route.useParams();
  const { part = "overview" } = route.useSearch();
  return <JobView key={jobId} jobId={jobId} part={part} />;
}
