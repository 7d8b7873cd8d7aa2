import {
  describeJob,
  PROPOSAL_STATE_WORDS,
  type Plan,
  type Proposal,
  type ProposalState,
  type Workload,
} from "@internevo/domain";
import { Alert, Code, Group, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../components/data-table.tsx";
import { LinkTo } from "../components/links.tsx";
import { MoreButton } from "../components/more-button.tsx";
import { Moment } from "../components/moment.tsx";
import { Facts, Page, Section } from "../components/page.tsx";
import { PlanLegend, PlanText } from "../components/plan/plan-text.tsx";
import { Badge } from "../components/state-badge.tsx";
import { Failed, Loading } from "../components/states.tsx";
import { ProposalAnswers } from "../components/workload/proposal-answers.tsx";
import { RunButton } from "../components/workload/run-button.tsx";
import {
  comparisonWords,
  EditButton,
  ScheduleBox,
  POLICY_WORDS,
  windowWords,
} from "../components/workload/settings.tsx";
import { isBeingPlanned, useProposals, useWorkload } from "../data/queries.ts";
import { mayActAs, useSession } from "../session/session.tsx";
import {
  formatBytes,
  formatPercent,
  formatSeconds,
  formatSignedPercent,
  formatSpan,
  sentence,
} from "../text/format.ts";
import { dimensionValue, fieldName, fieldValue } from "../text/words.ts";

const route = getRouteApi("/workloads/$workloadId");
const back = (
  <LinkTo to="/workloads" size="sm">
    ← Workloads
  </LinkTo>
);

const differencesOf = (current: Plan, proposed: Plan) =>
  (Object.keys({ ...current, ...proposed }) as (keyof Plan)[])
    .filter((field) => dimensionValue(current, field) !== dimensionValue(proposed, field))
    .map((field) => ({ field, from: dimensionValue(current, field), to: dimensionValue(proposed, field) }));

const TONES = {
  proposed: "waiting",
  trying: "active",
  tried: "waiting",
  applying: "active",
  applied: "good",
  returned: "quiet",
  dismissed: "quiet",
  superseded: "quiet",
} as const satisfies Record<ProposalState, string>;

function headline({ current, predictedGain, measuredGain }: Proposal): [strong: string, rest: string] {
  if (measuredGain !== null)
    return [
      `${formatSignedPercent(measuredGain)} measured`,
      `, ${formatSignedPercent(predictedGain)} by prediction`,
    ];
  if (current === null) return ["First plan", ": none was in use"];
  return predictedGain > 0
    ? [`${formatPercent(predictedGain)} less time a step`, ", by prediction"]
    : ["The plan in use does not fit any more", ""];
}

function ProposalCard({ proposal }: { proposal: Proposal }) {
  const { current, proposed } = proposal;
  const [strong, rest] = headline(proposal);
  const differences = current === null ? [] : differencesOf(current.plan, proposed.plan);
  return (
    <article className="proposal" data-proposal={proposal.id}>
      <header>
        <Badge tone={TONES[proposal.state]}>{PROPOSAL_STATE_WORDS[proposal.state]}</Badge>{" "}
        <strong>{strong}</strong>
        {rest}{" "}
        <span className="cell-note-inline">
          · <Moment at={proposal.createdAt} both />
        </span>
      </header>
      <Table label="Proposal: plan in use and plan proposed" narrow="cards">
        <Head>
          <Row>
            <Column />
            <Column>Plan</Column>
            <Column numeric>Step time</Column>
            <Column numeric>Peak memory</Column>
          </Row>
        </Head>
        <Body>
          {current && (
            <Row>
              <RowTitle>{proposal.state === "applied" ? "In use before" : "In use"}</RowTitle>
              <Cell label="Plan">
                <PlanText plan={current.plan} />
              </Cell>
              <Cell label="Step time" numeric>
                {formatSeconds(current.predicted.stepTimeSeconds)}
              </Cell>
              <Cell label="Peak memory" numeric>
                {formatBytes(current.predicted.peakMemoryBytes)}
              </Cell>
            </Row>
          )}
          <Row className="row-chosen">
            <RowTitle>{proposal.state === "applied" ? "In use" : "Proposed"}</RowTitle>
            <Cell label="Plan">
              <PlanText plan={proposed.plan} />
            </Cell>
            <Cell label="Step time" numeric>
              {formatSeconds(proposed.predicted.stepTimeSeconds)}
            </Cell>
            <Cell label="Peak memory" numeric>
              {formatBytes(proposed.predicted.peakMemoryBytes)}
            </Cell>
          </Row>
        </Body>
      </Table>
      {proposal.reason !== null && (
        <Text size="sm">
          {sentence(proposal.reason)}
          {proposal.jobId !== null && (
            <>
              {" "}
              <LinkTo to="/jobs/$jobId" params={{ jobId: proposal.jobId }}>
                See the job
              </LinkTo>
            </>
          )}
        </Text>
      )}
      {differences.length > 0 && (
        <ul className="differences" aria-label="Differences">
          {differences.map(({ field, from, to }) => (
            <li key={field}>
              {fieldName(field)}: <Code>{fieldValue(field, from)}</Code> →{" "}
              <Code>{fieldValue(field, to)}</Code>
            </li>
          ))}
        </ul>
      )}
      <ProposalAnswers proposal={proposal} />
    </article>
  );
}

function NoProposals({ workload }: { workload: Workload }) {
  const since =
    workload.lastRunAt === null
      ? "None yet: the workload has not been planned. Its next run is above; “Run now” does not wait for it."
      : "None: no run has found a plan that is better by enough.";
  const why = isBeingPlanned(workload) ? "None yet: a run is queued or running." : since;
  return (
    <Text size="sm" c="dimmed">
      {why}
    </Text>
  );
}

function Proposals({ workload }: { workload: Workload }) {
  const query = useProposals(workload.id);
  const proposals = query.data?.pages.flatMap(({ items }) => items) ?? [];
  if (query.isPending) return <Loading label="proposals" rows={2} />;
  if (query.isError && proposals.length === 0)
    return <Failed what="proposals" error={query.error} onRetry={() => void query.refetch()} />;
  if (proposals.length === 0) return <NoProposals workload={workload} />;
  return (
    <>
      {proposals.map((proposal) => (
        <ProposalCard key={proposal.id} proposal={proposal} />
      ))}
      <MoreButton query={query}>Show older proposals</MoreButton>
      <PlanLegend />
    </>
  );
}

export function WorkloadPage() {
  const { workloadId } = route.useParams();
  const mayRun = mayActAs(useSession(), "operator");
  const query = useWorkload(workloadId);
  const workload = query.data;
  if (!workload)
    return (
      <Page title="Workload" above={back}>
        {query.isError ? (
          <Failed what="workload" error={query.error} onRetry={() => void query.refetch()} />
        ) : (
          <Loading label="workload" />
        )}
      </Page>
    );
  return (
    <Page
      title={workload.name}
      above={back}
      lead={describeJob(workload.spec)}
      actions={
        mayRun ? (
          <Group gap="sm" align="center">
            <ScheduleBox workload={workload} />
            <EditButton workload={workload} />
            <RunButton id={workload.id} name={workload.name} />
          </Group>
        ) : undefined
      }
    >
      {!workload.enabled && (
        <Alert color="gray">It is paused: no schedule plans it, and no run changes for it by itself.</Alert>
      )}
      <Facts
        items={[
          { name: "Schedule", value: <Code>{workload.cron}</Code>, note: workload.timeZone },
          {
            name: "Next run",
            value: workload.nextRunAt === null ? "–" : <Moment at={workload.nextRunAt} both />,
          },
          {
            name: "Last run",
            value: workload.lastRunAt === null ? "never" : <Moment at={workload.lastRunAt} both />,
          },
          {
            name: "Minimum gain",
            value: formatPercent(workload.gainThreshold),
            note: "in step time, for a proposal and to keep it",
          },
          { name: "A better plan", value: POLICY_WORDS[workload.policy], note: comparisonWords(workload) },
          {
            name: "Runs are stopped",
            value: windowWords(workload),
            note: workload.mayMeasureRuns ? "also to measure the cluster" : "never to measure the cluster",
          },
          {
            name: "Catch-up window",
            value: formatSpan(workload.catchUpWindowSeconds * 1000),
            note: "a missed run still starts this late",
          },
          { name: "Registered", value: <Moment at={workload.createdAt} both /> },
          {
            name: "Outcome",
            value: isBeingPlanned(workload) ? "Queued or running" : (workload.lastOutcome ?? "–"),
            wide: true,
          },
        ]}
      />
      <Section title="Proposals">
        <Proposals workload={workload} />
      </Section>
    </Page>
  );
}
