import { Code, Text } from "@mantine/core";
import type { WorkloadSummary } from "@internevo/domain";
import { Link } from "@tanstack/react-router";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../components/data-table.tsx";
import { Moment } from "../components/moment.tsx";
import { MoreButton } from "../components/more-button.tsx";
import { Page } from "../components/page.tsx";
import { Badge } from "../components/state-badge.tsx";
import { Empty, Listed } from "../components/states.tsx";
import { RunButton } from "../components/workload/run-button.tsx";
import { isBeingPlanned, useWorkloads } from "../data/queries.ts";
import { mayActAs, useSession } from "../session/session.tsx";
import { formatPercent } from "../text/format.ts";

function WorkloadRow({ workload, mayRun }: { workload: WorkloadSummary; mayRun: boolean }) {
  return (
    <Row name={workload.id}>
      <RowTitle>
        <Link to="/workloads/$workloadId" params={{ workloadId: workload.id }} className="plain-link">
          {workload.name}
        </Link>
      </RowTitle>
      <Cell label="Schedule">
        <span>
          <Code>{workload.cron}</Code> <span className="cell-note-inline">{workload.timeZone}</span>
          {!workload.enabled && (
            <>
              {" "}
              <Badge tone="quiet">Off</Badge>
            </>
          )}
        </span>
      </Cell>
      <Cell label="Next run">
        {workload.nextRunAt === null ? undefined : <Moment at={workload.nextRunAt} both />}
      </Cell>
      <Cell label="Last run">
        {workload.lastRunAt === null ? (
          <span className="nothing">never</span>
        ) : (
          <Moment at={workload.lastRunAt} both />
        )}
      </Cell>
      <Cell label="Outcome">
        {isBeingPlanned(workload) ? "Queued or running" : (workload.lastOutcome ?? undefined)}
      </Cell>
      <Cell label="Minimum gain" numeric>
        {formatPercent(workload.gainThreshold)}
      </Cell>
      {mayRun && (
        <Cell label="">
          <RunButton id={workload.id} name={workload.name} />
        </Cell>
      )}
    </Row>
  );
}

export function WorkloadsPage() {
  const mayRun = mayActAs(useSession(), "operator");
  const query = useWorkloads();
  const workloads = query.data?.pages.flatMap(({ items }) => items) ?? [];
  return (
    <Page
      title="Workloads"
      lead="Jobs that are planned again by a schedule. When a plan is better by enough, it is proposed."
    >
      <Listed
        query={query}
        what="workloads"
        isEmpty={workloads.length === 0}
        empty={
          <Empty title="No workload yet">
            <Text size="sm">
              Register one at the command line, to have it planned again every night at three:
            </Text>
            <Code block className="wrapped">
              npx internevo replan add job.yaml --cron &quot;0 3 * * *&quot;
            </Code>
          </Empty>
        }
      >
        <Table label="Workloads" narrow="cards">
          <Head>
            <Row>
              <Column>Workload</Column>
              <Column>Schedule</Column>
              <Column>Next run</Column>
              <Column>Last run</Column>
              <Column>Outcome</Column>
              <Column numeric>Minimum gain</Column>
              {mayRun && (
                <Column>
                  <span className="visually-hidden">Actions</span>
                </Column>
              )}
            </Row>
          </Head>
          <Body>
            {workloads.map((workload) => (
              <WorkloadRow key={workload.id} workload={workload} mayRun={mayRun} />
            ))}
          </Body>
        </Table>
        <MoreButton query={query}>Show more</MoreButton>
      </Listed>
    </Page>
  );
}
