import { API_PREFIX, type AuditFilter, type AuditRecord } from "@internevo/contracts";
import { NativeSelect, Text } from "@mantine/core";
import { getRouteApi, Link } from "@tanstack/react-router";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../components/data-table.tsx";
import { Filters, FilterText, withoutEmpty } from "../components/filters.tsx";
import { Moment } from "../components/moment.tsx";
import { MoreButton } from "../components/more-button.tsx";
import { Page } from "../components/page.tsx";
import { Badge } from "../components/state-badge.tsx";
import { Empty, Listed } from "../components/states.tsx";
import { useAudit } from "../data/queries.ts";

const route = getRouteApi("/audit");

/** What an action was about, with a link where the console has a page for it. */
function Target({ record: { action, target } }: { record: AuditRecord }) {
  if (target === null) return <span className="nothing">–</span>;
  if (action.includes(` ${API_PREFIX}/jobs`))
    return (
      <Link to="/jobs/$jobId" params={{ jobId: target }} className="plain-link breakable">
        {target}
      </Link>
    );
  return <span className="breakable">{target}</span>;
}

/** `cancel` of `POST /api/v1/jobs/:id/cancel` is `POST /jobs/:id/cancel`: the prefix says nothing. */
const actionWords = (action: string): string => action.replace(` ${API_PREFIX}/`, " /");

function AuditRow({ record }: { record: AuditRecord }) {
  const refused = record.status >= 400;
  const { repeated, code } = (record.details ?? {}) as { repeated?: number; code?: string };
  return (
    <Row name={String(record.id)}>
      <RowTitle>
        <Moment at={record.at} both />
      </RowTitle>
      <Cell label="Who">
        <span>
          {record.actor} <span className="cell-note-inline">{record.role}</span>
        </span>
      </Cell>
      <Cell label="Action">{actionWords(record.action)}</Cell>
      <Cell label="About">
        <Target record={record} />
      </Cell>
      <Cell label="Result">
        <span>
          <Badge tone={refused ? "bad" : "good"}>{refused ? "Refused" : "Done"}</Badge>{" "}
          <span className="cell-note-inline">
            {[String(record.status), code, repeated === undefined ? undefined : `${repeated} more`]
              .filter((part) => part !== undefined)
              .join(", ")}
          </span>
        </span>
      </Cell>
    </Row>
  );
}

export function AuditPage() {
  const filter = route.useSearch();
  const navigate = route.useNavigate();
  const query = useAudit(filter);
  const records = query.data?.pages.flatMap(({ items }) => items) ?? [];
  const set = (change: Partial<Record<keyof AuditFilter, string>>) =>
    void navigate({ search: (now) => withoutEmpty({ ...now, ...change }) as AuditFilter, replace: true });
  return (
    <Page title="Audit" lead="Every change that somebody made or was refused, newest first.">
      <Filters>
        <FilterText
          label="Who"
          placeholder="Name of a token"
          value={filter.actor ?? ""}
          onChange={(actor) => set({ actor })}
        />
        <FilterText
          label="Action"
          placeholder="For example cancel"
          value={filter.action ?? ""}
          onChange={(action) => set({ action })}
        />
        <NativeSelect
          label="Result"
          value={filter.outcome ?? ""}
          onChange={(event) => set({ outcome: event.currentTarget.value })}
          data={[
            { value: "", label: "All" },
            { value: "done", label: "Done" },
            { value: "refused", label: "Refused" },
          ]}
        />
      </Filters>
      <Listed
        query={query}
        what="actions"
        isEmpty={records.length === 0}
        empty={
          <Empty title="Nothing matches">
            <Text size="sm">No change was made or refused that these filters show.</Text>
          </Empty>
        }
      >
        <Table label="Actions" narrow="cards">
          <Head>
            <Row>
              <Column>When</Column>
              <Column>Who</Column>
              <Column>Action</Column>
              <Column>About</Column>
              <Column>Result</Column>
            </Row>
          </Head>
          <Body>
            {records.map((record) => (
              <AuditRow key={record.id} record={record} />
            ))}
          </Body>
        </Table>
        <MoreButton query={query} />
      </Listed>
    </Page>
  );
}
