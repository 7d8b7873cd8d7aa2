import { JOB_STATES, QUEUED_STATE } from "@internevo/domain";
import { Button, Code, CopyButton, Group, NativeSelect, Progress, Text } from "@mantine/core";
import type { JobFilter, JobSummary } from "@internevo/contracts";
import { getRouteApi, Link } from "@tanstack/react-router";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../components/data-table.tsx";
import { Filters, FilterText, withoutEmpty } from "../components/filters.tsx";
import { ButtonTo } from "../components/links.tsx";
import { MoreButton } from "../components/more-button.tsx";
import { Moment, Span } from "../components/moment.tsx";
import { Page } from "../components/page.tsx";
import { JobStateBadge } from "../components/state-badge.tsx";
import { Empty, Listed } from "../components/states.tsx";
import { isActive, useJobs } from "../data/queries.ts";
import { isOfInstallation, mayActAs, useSession } from "../session/session.tsx";
import { formatCounted, formatInteger, formatLoss, formatMoment } from "../text/format.ts";
import { JOB_STATE_WORDS, positionWords, QUEUED_WORD } from "../text/words.ts";

const route = getRouteApi("/jobs");

/** What a stage counts; undefined where it has not said how far it is. */
function countOf({
  state,
  progress,
  trialsDone,
  trialsTotal,
  lastStep,
  steps,
}: JobSummary): readonly [done: number, total: number, unit: string] | undefined {
  if (state === "trialling") return [trialsDone, trialsTotal, "trials"];
  if (state !== "profiling" && state !== "planning") return [lastStep, steps, "steps"];
  const { done = null, total = null } = (progress?.stage === state && progress) || {};
  return done === null || total === null || total === 0
    ? undefined
    : [done, total, state === "profiling" ? "runs" : "batches of plans"];
}

/** How far a job is, in the unit of its stage. */
function Advance({ job }: { job: JobSummary }) {
  if (!isActive(job.state) && job.lastStep === 0) return <span className="nothing">–</span>;
  if (job.queue)
    return (
      <Text size="sm" className="text-warning" title={`since ${formatMoment(job.queue.waitingSince)}`}>
        {positionWords(job.queue)}
      </Text>
    );
  if (job.progress?.stage === job.state && job.progress.waits)
    return (
      <Text size="sm" className="text-warning" title={job.progress.message}>
        {QUEUED_WORD.toLowerCase()}
      </Text>
    );
  const counted = countOf(job);
  if (counted === undefined)
    return (
      <Text size="sm" c="dimmed">
        {JOB_STATE_WORDS[job.state].toLowerCase()}
      </Text>
    );
  const [done, total, unit] = counted;
  return (
    <div className="advance">
      <span className="figures">
        {formatInteger(done)} / {formatInteger(total)} {unit}
      </span>
      <Progress
        value={total > 0 ? (100 * done) / total : 0}
        size={4}
        aria-label={`${done} of ${total} ${unit}`}
      />
    </div>
  );
}

const SUBMIT_COMMAND = "npx internevo submit job.yaml";

function NoJobs({ filter }: { filter: JobFilter }) {
  const session = useSession();
  const { state, ...others } = filter;
  if (Object.keys(filter).length > 0) {
    const title =
      state === undefined || Object.keys(others).length > 0
        ? "No job matches"
        : `No job is ${stateWord(state).toLowerCase()}`;
    return (
      <Empty title={title}>
        <Link to="/jobs" className="plain-link">
          Show all jobs
        </Link>
      </Empty>
    );
  }
  return (
    <Empty title="No jobs yet">
      <Text size="sm" maw={620}>
        A job says which model, sequence length, batch and cluster you have. InternEvo profiles the cluster,
        ranks every plan, tries the best ten for real, and trains with the winner.
      </Text>
      <Group gap="sm">
        {mayActAs(session, "operator") && <ButtonTo to="/submit">Submit a job</ButtonTo>}
        <Text size="sm">
          or at the command line: <Code>{SUBMIT_COMMAND}</Code>
        </Text>
        <CopyButton value={SUBMIT_COMMAND}>
          {({ copied, copy }) => (
            <Button size="compact-sm" variant="default" onClick={copy}>
              {copied ? "Copied" : "Copy"}
            </Button>
          )}
        </CopyButton>
      </Group>
    </Empty>
  );
}

const stateWord = (state: NonNullable<JobFilter["state"]>): string =>
  state === QUEUED_STATE ? QUEUED_WORD : JOB_STATE_WORDS[state];

function JobTable({ jobs }: { jobs: readonly JobSummary[] }) {
  return (
    <Table label="Jobs" narrow="cards" className="jobs-table">
      <Head>
        <Row>
          <Column>Job</Column>
          <Column>State</Column>
          <Column>Model</Column>
          <Column>Cluster</Column>
          <Column>Project</Column>
          <Column>Owner</Column>
          <Column>Progress</Column>
          <Column numeric>Last loss</Column>
          <Column>Submitted</Column>
          <Column numeric>Took</Column>
        </Row>
      </Head>
      <Body>
        {jobs.map((job) => (
          <Row key={job.id} name={job.id}>
            <RowTitle>
              <Link to="/jobs/$jobId" params={{ jobId: job.id }} className="plain-link">
                {job.name}
              </Link>
            </RowTitle>
            <Cell label="State">
              <div>
                <JobStateBadge state={job.state} isQueued={job.queue !== null} />
                {job.reason !== null && (
                  <div className="cell-note clamp" title={job.reason}>
                    {job.reason}
                  </div>
                )}
              </div>
            </Cell>
            <Cell label="Model">{job.model}</Cell>
            <Cell label="Cluster">{job.cluster}</Cell>
            <Cell label="Project">{job.project}</Cell>
            <Cell label="Owner">{job.owner ?? undefined}</Cell>
            <Cell label="Progress">{Advance({ job })}</Cell>
            <Cell label="Last loss" numeric>
              {job.lastLoss === null ? undefined : (
                <span>
                  {formatLoss(job.lastLoss)} <span className="unit">nats</span>
                </span>
              )}
            </Cell>
            <Cell label="Submitted">
              <Moment at={job.createdAt} />
            </Cell>
            <Cell label="Took" numeric>
              <Span from={job.createdAt} to={job.endedAt} />
            </Cell>
          </Row>
        ))}
      </Body>
    </Table>
  );
}

export function JobsPage() {
  const session = useSession();
  const filter = route.useSearch();
  const navigate = route.useNavigate();
  const query = useJobs(filter);
  const set = (change: Partial<Record<keyof JobFilter, string>>) =>
    void navigate({ search: (now) => withoutEmpty({ ...now, ...change }) as JobFilter, replace: true });
  const jobs = query.data?.pages.flatMap(({ items }) => items) ?? [];
  return (
    <Page
      title="Jobs"
      actions={mayActAs(session, "operator") ? <ButtonTo to="/submit">Submit a job</ButtonTo> : undefined}
    >
      <Filters>
        <FilterText
          label="Name"
          placeholder="A part of it"
          value={filter.name ?? ""}
          onChange={(name) => set({ name })}
        />
        <NativeSelect
          label="State"
          value={filter.state ?? ""}
          onChange={(event) => set({ state: event.currentTarget.value })}
          data={[
            { value: "", label: "All states" },
            ...([QUEUED_STATE, ...JOB_STATES] as const).map((each) => ({
              value: each,
              label: stateWord(each),
            })),
          ]}
        />
        <FilterText label="Cluster" value={filter.cluster ?? ""} onChange={(cluster) => set({ cluster })} />
        <FilterText
          label="Label"
          placeholder="For example team=nlp"
          value={filter.label ?? ""}
          onChange={(label) => {
            // Half a label narrows nothing yet.
            if (label === "" || /^[^=]+=./.test(label)) set({ label });
          }}
        />
        {isOfInstallation(session) && (
          <FilterText label="Project" value={filter.project ?? ""} onChange={(project) => set({ project })} />
        )}
        <FilterText label="Owner" value={filter.owner ?? ""} onChange={(owner) => set({ owner })} />
      </Filters>
      <Listed query={query} what="jobs" isEmpty={jobs.length === 0} empty={<NoJobs filter={filter} />}>
        <JobTable jobs={jobs} />
        <Group justify="space-between">
          <Text size="sm" c="dimmed">
            {formatCounted(jobs.length, "job")}
            {query.hasNextPage ? " shown, newest first" : ", newest first"}
          </Text>
          <MoreButton query={query}>Show older jobs</MoreButton>
        </Group>
      </Listed>
    </Page>
  );
}
