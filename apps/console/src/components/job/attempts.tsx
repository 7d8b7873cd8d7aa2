import type { JobDetail } from "@internevo/contracts";
import { gaveWayWords, planLabel, worldSize } from "@internevo/domain";
import { formatCounted, formatInteger, sentence } from "../../text/format.ts";
import { FAILURE_WORDS } from "../../text/words.ts";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../data-table.tsx";
import { Moment, Span } from "../moment.tsx";
import { AttemptStateBadge } from "../state-badge.tsx";

export function Attempts({ job: { attempts, spec } }: { job: Pick<JobDetail, "attempts" | "spec"> }) {
  // Only nodes that were lost make plans differ.
  const differ = new Set(attempts.flatMap(({ plan }) => (plan ? [planLabel(plan)] : []))).size > 1;
  return (
    <Table label="Attempts" narrow="cards">
      <Head>
        <Row>
          <Column>Attempt</Column>
          <Column>State</Column>
          <Column numeric>From step</Column>
          <Column numeric>To step</Column>
          <Column>Started</Column>
          <Column numeric>Took</Column>
          {differ && <Column>Nodes and plan</Column>}
          <Column>Why it ended</Column>
        </Row>
      </Head>
      <Body>
        {attempts.map((attempt) => (
          <Row key={attempt.number}>
            <RowTitle>{attempt.number}</RowTitle>
            <Cell label="State">
              <AttemptStateBadge state={attempt.state} />
            </Cell>
            <Cell label="From step" numeric>
              {formatInteger(attempt.resumedFromStep)}
            </Cell>
            <Cell label="To step" numeric>
              {formatInteger(attempt.lastStep)}
            </Cell>
            <Cell label="Started">
              <Moment at={attempt.startedAt} />
            </Cell>
            <Cell label="Took" numeric>
              <Span from={attempt.startedAt} to={attempt.endedAt} />
            </Cell>
            {differ && (
              <Cell label="Nodes and plan">
                {attempt.plan ? (
                  <span>
                    {formatInteger(worldSize(attempt.plan) / spec.cluster.gpusPerNode)} of{" "}
                    {formatCounted(spec.cluster.nodes, "node")}: <code>{planLabel(attempt.plan)}</code>
                  </span>
                ) : undefined}
              </Cell>
            )}
            <Cell label="Why it ended">
              {attempt.failure ? (
                <span>
                  {FAILURE_WORDS[attempt.failure.code]}: {attempt.failure.message}
                </span>
              ) : (
                attempt.gaveWayTo !== undefined && sentence(gaveWayWords(attempt.gaveWayTo))
              )}
            </Cell>
          </Row>
        ))}
      </Body>
    </Table>
  );
}
