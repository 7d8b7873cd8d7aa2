import type { ClusterRecord } from "@internevo/contracts";
import { capacityWords, CLUSTER_HEALTH_WORDS, formatCounted, positionWords } from "@internevo/domain";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { useClusters } from "../data/queries.ts";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "./data-table.tsx";
import { Moment } from "./moment.tsx";
import { Badge, JobStateBadge } from "./state-badge.tsx";
import { Listed } from "./states.tsx";

/** So many of those that wait are named. */
const NAMED_WAITING = 3;

const HEALTH_TONES = { ready: "good", partly: "warning", away: "bad" } as const;

/** The installation's clusters: what they have, how they are, and who uses them. */
export function ClusterList() {
  const query = useClusters();
  const clusters = query.data?.items ?? [];
  return (
    <Listed query={query} what="clusters" isEmpty={clusters.length === 0} empty={null}>
      <Table label="Clusters" narrow="cards">
        <Head>
          <Row>
            <Column>Cluster</Column>
            <Column>Health</Column>
            <Column>Capacity</Column>
            <Column>Used by</Column>
            <Column>Waiting</Column>
          </Row>
        </Head>
        <Body>
          {clusters.map((cluster) => (
            <ClusterRow key={`${cluster.launcher} ${cluster.name}`} cluster={cluster} />
          ))}
        </Body>
      </Table>
    </Listed>
  );
}

const ClusterRow = ({ cluster }: { cluster: ClusterRecord }) => (
  <Row name={cluster.name}>
    <RowTitle>
      {cluster.name} <span className="cell-note-inline">{cluster.launcher}</span>
    </RowTitle>
    <Cell label="Health">
      <Health health={cluster.health} />
    </Cell>
    <Cell label="Capacity">{cluster.capacity === null ? "–" : capacityWords(cluster.capacity)}</Cell>
    <Cell label="Used by">
      <Lines
        none={cluster.hostsInUse > 0 ? "other projects" : "nobody"}
        lines={cluster.holders.map((holder) => (
          <>
            <Work {...holder} /> {holder.state !== null && <JobStateBadge state={holder.state} />}
          </>
        ))}
      />
    </Cell>
    <Cell label="Waiting">
      <Lines
        none="nobody"
        lines={[
          ...cluster.waiting.slice(0, NAMED_WAITING).map((waiter) => (
            <>
              <Work {...waiter} />{" "}
              <span className="cell-note-inline">
                {positionWords(waiter)}, since <Moment at={waiter.waitingSince} />
              </span>
            </>
          )),
          ...(cluster.waiting.length > NAMED_WAITING
            ? [`and ${formatCounted(cluster.waiting.length - NAMED_WAITING, "more", "more")}`]
            : []),
        ]}
      />
    </Cell>
  </Row>
);

function Health({ health }: Pick<ClusterRecord, "health">) {
  if (health === null) return <span className="cell-note-inline">not looked at yet</span>;
  return (
    <span>
      <Badge tone={HEALTH_TONES[health.state]}>{CLUSTER_HEALTH_WORDS[health.state]}</Badge>{" "}
      <span className="cell-note-inline">
        {health.state !== "ready" && `${health.message}; `}looked at <Moment at={health.lookedAt} />
      </span>
    </span>
  );
}

/** A job or workload, by its name. */
const Work = ({ kind, id, name }: Pick<ClusterRecord["holders"][number], "kind" | "id" | "name">) =>
  kind === "job" ? (
    <Link to="/jobs/$jobId" params={{ jobId: id }} className="plain-link">
      {name}
    </Link>
  ) : (
    <Link to="/workloads/$workloadId" params={{ workloadId: id }} className="plain-link">
      {name}
    </Link>
  );

const Lines = ({ lines, none }: { lines: readonly ReactNode[]; none: string }) =>
  lines.length === 0 ? (
    <span className="cell-note-inline">{none}</span>
  ) : (
    <div>
      {lines.map((line, index) => (
        // They are shown as they come, and have no state.
        <div key={index}>{line}</div>
      ))}
    </div>
  );
