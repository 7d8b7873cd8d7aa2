import { COMPARED_JOBS, type Comparison } from "@internevo/contracts";
import { comparedValue, RUN_FIGURES, type DifferingField, type RunFigure } from "@internevo/domain";
import { Button, Code, NativeSelect, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import { LinesChart, type Line } from "../components/chart/lines-chart.tsx";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../components/data-table.tsx";
import { LinkTo } from "../components/links.tsx";
import { Moment } from "../components/moment.tsx";
import { Page, Section } from "../components/page.tsx";
import { JobStateBadge } from "../components/state-badge.tsx";
import { Failed, Loading } from "../components/states.tsx";
import { useComparison, useJobs } from "../data/queries.ts";
import { formatInteger, formatLoss, formatSignedPercent } from "../text/format.ts";
import { fieldName, fieldValue } from "../text/words.ts";

const route = getRouteApi("/compare");
type ComparedJob = Comparison["jobs"][number];

const nats = (value: number): string => `${formatLoss(value)} nats`;

/** What columns are called: jobs of one name by the beginning of their ids too. */
const namesOf = (jobs: readonly Pick<ComparedJob, "id" | "name">[]): readonly string[] =>
  jobs.map(({ id, name }) =>
    jobs.some((other) => other.name === name && other.id !== id) ? `${name} (${id.slice(0, 8)})` : name,
  );

interface ComparedTableProps {
  readonly label: string;
  readonly first: string;
  readonly names: readonly string[];
  readonly rows: readonly {
    readonly name: string;
    readonly values: readonly (readonly [string, (string | undefined)?])[];
  }[];
}

/** A row for what differs, a column for each job. */
function ComparedTable({ label, first, names, rows }: ComparedTableProps) {
  return (
    <Table label={label} narrow="cards" className="compared-table">
      <Head>
        <Row>
          <Column>{first}</Column>
          {names.map((name) => (
            <Column key={name}>{name}</Column>
          ))}
        </Row>
      </Head>
      <Body>
        {rows.map(({ name, values }) => (
          <Row key={name} name={name}>
            <RowTitle>{name}</RowTitle>
            {values.map(([value, note], index) => (
              <Cell key={index} label={names[index] ?? ""}>
                <span className="compared-value">
                  {value}
                  {note !== undefined && <span className="cell-note-inline"> {note}</span>}
                </span>
              </Cell>
            ))}
          </Row>
        ))}
      </Body>
    </Table>
  );
}

/** Fields that differ, by the words of whoever wrote them. */
function Differing({
  title,
  fields,
  names,
  called = (field) => field,
  inWords = (_, value) => comparedValue(value),
}: {
  title: string;
  fields: readonly DifferingField[];
  names: readonly string[];
  called?: (field: string) => string;
  inWords?: (field: string, value: unknown) => string;
}) {
  if (fields.length === 0) return null;
  const rows = fields.map(({ field, values }) => ({
    name: called(field),
    values: values.map((value) => [value === null ? "–" : inWords(field, value)] as const),
  }));
  return (
    <Section title={title} folded={`${fields.length}`}>
      <ComparedTable label={title} first="Field" names={names} rows={rows} />
    </Section>
  );
}

const isRelative = (figure: RunFigure): boolean => figure !== "steps";

function Figures({ figures, names }: { figures: Comparison["figures"]; names: readonly string[] }) {
  const rows = figures.map(({ figure, values: [first = null, ...others] }) => {
    const { name, format } = RUN_FIGURES[figure];
    const shown = (value: number | null): string => (value === null ? "–" : format(value));
    const against = (value: number | null): string | undefined =>
      value === null || first === null || first === 0 || !isRelative(figure)
        ? undefined
        : formatSignedPercent((value - first) / first);
    return {
      name,
      values: [[shown(first)] as const, ...others.map((value) => [shown(value), against(value)] as const)],
    };
  });
  return (
    <Section
      title="Figures"
      about="Of the report, or of the steps so far. Percentages are against the first job."
    >
      <ComparedTable label="Figures" first="Figure" names={names} rows={rows} />
    </Section>
  );
}

const linesOf = (
  losses: Comparison["losses"],
  names: readonly string[],
  which: "training" | "validation",
): Line[] =>
  losses.map((loss, index) => ({
    name: names[index] ?? "",
    points: loss[which].map(({ step, loss: y }) => ({ x: step, y })),
  }));

function Losses({ losses, names }: { losses: Comparison["losses"]; names: readonly string[] }) {
  const training = useMemo(() => linesOf(losses, names, "training"), [losses, names]);
  const validation = useMemo(() => linesOf(losses, names, "validation"), [losses, names]);
  const has = (lines: readonly Line[]): boolean => lines.some(({ points }) => points.length > 0);
  if (!has(training)) return null;
  return (
    <Section title="Losses" about="Nats a token. Of long trainings each point is the mean of some steps.">
      <figure className="compared-chart" aria-label="Training loss">
        <figcaption>Training loss</figcaption>
        <LinesChart
          label={`Training loss over steps, ${names.join(", ")}`}
          xLabel="Step"
          lines={training}
          formatX={formatInteger}
          formatY={nats}
        />
      </figure>
      {has(validation) && (
        <figure className="compared-chart" aria-label="Validation loss">
          <figcaption>Validation loss, of held-out data</figcaption>
          <LinesChart
            label={`Validation loss over steps, ${names.join(", ")}`}
            xLabel="Step"
            lines={validation}
            formatX={formatInteger}
            formatY={nats}
            dots
          />
        </figure>
      )}
    </Section>
  );
}

function Compared({ comparison, onRemove }: { comparison: Comparison; onRemove: (id: string) => void }) {
  const { jobs, file, plan, cluster, profile, figures, losses } = comparison;
  const names = useMemo(() => namesOf(jobs), [jobs]);
  const isAlike = [file, plan, cluster, profile].every((fields) => fields.length === 0);
  return (
    <>
      <Table label="Compared jobs" narrow="cards">
        <Head>
          <Row>
            <Column>Job</Column>
            <Column>State</Column>
            <Column>Plan</Column>
            <Column>Submitted</Column>
            <Column aria-label="Remove" />
          </Row>
        </Head>
        <Body>
          {jobs.map((job, index) => (
            <Row key={job.id} name={job.name}>
              <RowTitle>
                <LinkTo to="/jobs/$jobId" params={{ jobId: job.id }} size="sm">
                  {names[index]}
                </LinkTo>
              </RowTitle>
              <Cell label="State">
                <JobStateBadge state={job.state} />
              </Cell>
              <Cell label="Plan">{job.plan === null ? null : <Code>{job.plan}</Code>}</Cell>
              <Cell label="Submitted">
                <Moment at={job.createdAt} />
              </Cell>
              <Cell>
                <Button
                  size="compact-sm"
                  variant="default"
                  aria-label={`Remove ${names[index] ?? ""}`}
                  onClick={() => onRemove(job.id)}
                >
                  Remove
                </Button>
              </Cell>
            </Row>
          ))}
        </Body>
      </Table>
      {figures.length > 0 && <Figures figures={figures} names={names} />}
      <Losses losses={losses} names={names} />
      {isAlike && (
        <Text size="sm">
          Job file, plan, cluster and profile are alike, but for the name and the project.
        </Text>
      )}
      <Differing title="Job file" fields={file} names={names} />
      <Differing title="Plan" fields={plan} names={names} called={fieldName} inWords={fieldValue} />
      <Differing title="Cluster" fields={cluster} names={names} />
      <Differing title="Profile" fields={profile} names={names} />
    </>
  );
}

/** Adds one of the newest jobs. */
function AddJob({ ids, onAdd }: { ids: readonly string[]; onAdd: (id: string) => void }) {
  const jobs = useJobs({}).data?.pages.flatMap(({ items }) => items) ?? [];
  const others = jobs.filter(({ id }) => !ids.includes(id));
  const names = namesOf(jobs);
  if (ids.length >= COMPARED_JOBS.most) return null;
  return (
    <NativeSelect
      className="wide-field"
      label="Add a job"
      description={`${COMPARED_JOBS.least} to ${COMPARED_JOBS.most} jobs; the newest are listed. The address keeps them.`}
      value=""
      onChange={(event) => event.currentTarget.value !== "" && onAdd(event.currentTarget.value)}
      data={[
        { value: "", label: "Choose a job…" },
        ...others.map((job) => ({ value: job.id, label: names[jobs.indexOf(job)] ?? job.name })),
      ]}
    />
  );
}

/** The only job so far. */
function FirstJob({ id }: { id: string }) {
  const job = useJobs({})
    .data?.pages.flatMap(({ items }) => items)
    .find((each) => each.id === id);
  return (
    <Text size="sm">
      <LinkTo to="/jobs/$jobId" params={{ jobId: id }} size="sm">
        {job?.name ?? id}
      </LinkTo>{" "}
      is compared with those that you add.
    </Text>
  );
}

export function ComparePage() {
  const { job: ids = [] } = route.useSearch();
  const navigate = route.useNavigate();
  const { data, error, refetch } = useComparison(ids);
  const go = (job: readonly string[]): void => void navigate({ search: { job: [...job] }, replace: true });
  const isAsked = ids.length >= COMPARED_JOBS.least;
  return (
    <Page
      title="Compare jobs"
      above={
        <LinkTo to="/jobs" size="sm">
          ← Jobs
        </LinkTo>
      }
      lead="What differs between jobs, and how they trained. What is alike is left out."
    >
      <AddJob ids={ids} onAdd={(id) => go([...ids, id])} />
      {ids.length === 1 && <FirstJob id={ids[0] ?? ""} />}
      {isAsked && error && data === undefined && (
        <Failed what="job" error={error} onRetry={() => void refetch()} />
      )}
      {isAsked && data === undefined && !error && <Loading label="comparison" rows={6} />}
      {isAsked && data !== undefined && (
        <Compared comparison={data} onRemove={(id) => go(ids.filter((each) => each !== id))} />
      )}
    </Page>
  );
}
