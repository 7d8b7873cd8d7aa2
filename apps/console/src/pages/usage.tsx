import { usageCsv, type Usage, type UsageGroup, type UsageQuery } from "@internevo/contracts";
import { Button, NativeSelect, Text, TextInput } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../components/data-table.tsx";
import { Filters, FilterText, withoutEmpty } from "../components/filters.tsx";
import { Page } from "../components/page.tsx";
import { Empty, Listed } from "../components/states.tsx";
import { downloadText } from "../data/download.ts";
import { useUsage } from "../data/queries.ts";
import { isOfInstallation, useSession } from "../session/session.tsx";
import { formatGpuHours, formatInteger, formatMoment } from "../text/format.ts";

const route = getRouteApi("/usage");

const GROUPS: Readonly<Record<UsageGroup, string>> = {
  project: "Project",
  owner: "Owner",
  cluster: "Cluster",
  day: "Day (UTC)",
};

/** A day as a date field has it, from an instant; the day before where the instant is not of it any more. */
const dayOf = (instant: string | undefined, isEnd = false): string => {
  if (instant === undefined) return "";
  const at = new Date(instant);
  if (Number.isNaN(at.getTime())) return "";
  return new Date(at.getTime() - (isEnd ? 1 : 0)).toISOString().slice(0, 10);
};
const DAY_MILLISECONDS = 86_400_000;
/** The instant at which a day of a date field begins, or is over. */
function instantOf(day: string, isEnd = false): string {
  const at = new Date(`${day}T00:00:00Z`).getTime();
  return Number.isNaN(at) ? "" : new Date(at + (isEnd ? DAY_MILLISECONDS : 0)).toISOString();
}

const keyWords = (key: string | null): string => key ?? "Scheduled work";

function UsageTable({ usage: { by, rows, gpuHours } }: { usage: Usage }) {
  const most = Math.max(...rows.map((row) => row.gpuHours), Number.MIN_VALUE);
  return (
    <Table label="Usage" narrow="cards" className="usage-table">
      <Head>
        <Row>
          <Column>{GROUPS[by]}</Column>
          <Column numeric>GPU-hours</Column>
          <Column numeric>Share</Column>
          <Column numeric>Jobs</Column>
          <Column>
            <span className="visually-hidden">Chart of GPU-hours</span>
          </Column>
        </Row>
      </Head>
      <Body>
        {rows.map((row) => (
          <Row key={row.key ?? ""} name={row.key ?? ""}>
            <RowTitle>{keyWords(row.key)}</RowTitle>
            <Cell label="GPU-hours" numeric>
              {formatGpuHours(row.gpuHours)}
            </Cell>
            <Cell label="Share" numeric>
              {gpuHours > 0 ? `${((100 * row.gpuHours) / gpuHours).toFixed(1)}%` : undefined}
            </Cell>
            <Cell label="Jobs" numeric>
              {formatInteger(row.jobs)}
            </Cell>
            <Cell className="usage-bar-cell">
              {/* The figure is beside it. */}
              <div
                aria-hidden="true"
                className="usage-bar"
                style={{ width: `${(100 * row.gpuHours) / most}%` }}
              />
            </Cell>
          </Row>
        ))}
      </Body>
    </Table>
  );
}

export function UsagePage() {
  const session = useSession();
  const asked = route.useSearch();
  const navigate = route.useNavigate();
  const query = useUsage(asked);
  const set = (change: Partial<Record<keyof UsageQuery, string>>) =>
    void navigate({ search: (now) => withoutEmpty({ ...now, ...change }) as UsageQuery, replace: true });
  const usage = query.data;
  return (
    <Page
      title="Usage"
      lead="GPUs times the hours that jobs held their hosts."
      actions={
        <Button
          variant="default"
          disabled={usage === undefined || usage.rows.length === 0}
          onClick={() =>
            usage &&
            downloadText(
              `usage-by-${usage.by}-${dayOf(usage.from)}-${dayOf(usage.to, true)}.csv`,
              usageCsv(usage),
              "text/csv",
            )
          }
        >
          Download CSV
        </Button>
      }
    >
      <Filters>
        <NativeSelect
          label="By"
          value={asked.by ?? "project"}
          onChange={(event) => set({ by: event.currentTarget.value })}
          data={Object.entries(GROUPS).map(([value, label]) => ({ value, label }))}
        />
        <TextInput
          type="date"
          label="From"
          value={dayOf(asked.from ?? usage?.from)}
          onChange={(event) => set({ from: instantOf(event.currentTarget.value) })}
        />
        <TextInput
          type="date"
          label="To"
          value={dayOf(asked.to ?? usage?.to, true)}
          onChange={(event) => set({ to: instantOf(event.currentTarget.value, true) })}
        />
        {isOfInstallation(session) && (
          <FilterText label="Project" value={asked.project ?? ""} onChange={(project) => set({ project })} />
        )}
      </Filters>
      <Listed
        query={query}
        what="usage"
        isEmpty={usage?.rows.length === 0}
        empty={
          <Empty title="No job held hosts">
            <Text size="sm">Clusters with a scheduler of their own are not counted here.</Text>
          </Empty>
        }
      >
        {usage && (
          <>
            <UsageTable usage={usage} />
            <Text size="sm" c="dimmed">
              {formatGpuHours(usage.gpuHours)} GPU-hours from {formatMoment(usage.from)} to{" "}
              {formatMoment(usage.to)}
            </Text>
          </>
        )}
      </Listed>
    </Page>
  );
}
