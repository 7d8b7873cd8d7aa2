import type { ClusterChoiceAnswer, SweptAxis } from "@internevo/contracts";
import { frontSample, planLabel, type Candidate } from "@internevo/domain";
import { Alert, Button, Group, Text } from "@mantine/core";
import { useMemo, useRef, useState, type ReactNode } from "react";
import { downloadText, fileName } from "../../data/download.ts";
import { csvText } from "@internevo/domain";
import {
  formatBytes,
  formatCount,
  formatCounted,
  formatInteger,
  formatPercent,
  formatRate,
  formatSeconds,
  formatSecondsRange,
  formatSpan,
  formatTokens,
  sentence,
} from "../../text/format.ts";
import { svgOf } from "../chart/svg-file.ts";
import { XyChart, type XyPoint } from "../chart/xy-chart.tsx";
import { Body, Cell, Column, Head, Row, Table } from "../data-table.tsx";
import { Facts, Section } from "../page.tsx";
import { PlanText } from "../plan/plan-text.tsx";
import { UTILISATION_WORDS } from "../../text/words.ts";
import { Badge } from "../state-badge.tsx";
import { AXIS_WORDS, type Outcome } from "./questions.ts";

/** Memory of a GPU: what plans may use, and what a headroom keeps free beside it. */
export interface Room {
  readonly limitBytes: number;
  readonly keptBytes: number;
}

type Csv = readonly Readonly<Record<string, string | number | boolean | null>>[];

const GIB = 2 ** 30;
const MIB = 2 ** 20;

/** The unit in which memory is drawn, so that ticks are round. */
function memoryUnit(bytes: readonly number[]): {
  readonly size: number;
  readonly format: (value: number) => string;
} {
  const [size, name] = Math.max(0, ...bytes) < GIB ? [MIB, "MiB"] : [GIB, "GiB"];
  return { size, format: (value) => `${Number(value.toPrecision(3))} ${name}` };
}
const plain = (value: number): string =>
  value < 100 ? String(Number(value.toPrecision(3))) : formatCount(Number(value.toPrecision(4)));

const about = ({ plan, predicted }: Candidate): string =>
  `${planLabel(plan)}\n${formatSeconds(predicted.stepTimeSeconds)} a step, ${formatRate(predicted.tokensPerGpuPerSecond)} tokens/s a GPU, ${formatBytes(predicted.peakMemoryBytes)}`;

const csvOf = (best: Candidate | null): Csv[number] => ({
  stepTimeSeconds: best?.predicted.stepTimeSeconds ?? null,
  stepTimeLowSeconds: best?.predicted.stepTimeRangeSeconds?.low ?? null,
  stepTimeHighSeconds: best?.predicted.stepTimeRangeSeconds?.high ?? null,
  tokensPerGpuPerSecond: best?.predicted.tokensPerGpuPerSecond ?? null,
  mfu: best?.predicted.mfu ?? null,
  peakMemoryBytes: best?.predicted.peakMemoryBytes ?? null,
  plan: best === null ? null : planLabel(best.plan),
});

const ofAxis =
  (axis: SweptAxis) =>
  (value: number): string => {
    switch (axis) {
      case "sequence":
      case "batch":
        return formatTokens(value);
      case "memory":
        return formatBytes(value);
      case "nodes":
        return formatInteger(value);
      default:
        return `× ${value}`;
    }
  };

interface ResultProps {
  readonly title: string;
  readonly name: string;
  readonly charts?: ReactNode;
  readonly csv: Csv;
  readonly children: ReactNode;
}

/** Charts, the figures as a table, and both as files. */
function Result({ title, name, charts, csv, children }: ResultProps) {
  const place = useRef<HTMLDivElement>(null);
  const saveSvg = (): void => {
    const svg = place.current ? svgOf(place.current, title) : undefined;
    if (svg !== undefined) downloadText(`${name}.svg`, svg, "image/svg+xml");
  };
  return (
    <Section
      title={title}
      aside={
        <Group gap="xs">
          <Button
            size="compact-sm"
            variant="default"
            onClick={() => downloadText(`${name}.csv`, csvText(csv), "text/csv")}
          >
            CSV
          </Button>
          {charts !== undefined && (
            <Button size="compact-sm" variant="default" onClick={saveSvg}>
              SVG
            </Button>
          )}
        </Group>
      }
    >
      {charts !== undefined && (
        <div ref={place} className="xy-charts">
          {charts}
        </div>
      )}
      {children}
    </Section>
  );
}

function StepTime({ best }: { best: Candidate }) {
  const range = best.predicted.stepTimeRangeSeconds;
  return (
    <span className="cell-stack">
      <span>{formatSeconds(best.predicted.stepTimeSeconds)}</span>
      {range && <span className="cell-range">{formatSecondsRange(range)}</span>}
    </span>
  );
}

type SweepAnswer = Extract<Outcome, { kind: "sweep" }>["answer"];

function SweepTable({
  axis,
  rows,
  format,
}: Pick<SweepAnswer, "axis" | "rows"> & { format: (value: number) => string }) {
  return (
    <Table label="The best plan at each value" narrow="cards">
      <Head>
        <Row>
          <Column numeric>{AXIS_WORDS[axis].name}</Column>
          <Column numeric>Tokens/s</Column>
          <Column numeric>Tokens/s a GPU</Column>
          <Column numeric>Step time</Column>
          <Column numeric>{UTILISATION_WORDS.mfu}</Column>
          <Column numeric>Peak memory</Column>
          <Column>Best plan</Column>
        </Row>
      </Head>
      <Body>
        {rows.map(({ value, best, tokensPerSecond, reason }) => (
          <Row key={value} name={String(value)}>
            <th role="rowheader" scope="row" className="numeric card-title">
              {format(value)}
            </th>
            <Cell label="Tokens/s" numeric>
              {best && formatRate(tokensPerSecond)}
            </Cell>
            <Cell label="Tokens/s a GPU" numeric>
              {best && formatRate(best.predicted.tokensPerGpuPerSecond)}
            </Cell>
            <Cell label="Step time" numeric>
              {best && <StepTime best={best} />}
            </Cell>
            <Cell label={UTILISATION_WORDS.mfu} numeric>
              {best && formatPercent(best.predicted.mfu)}
            </Cell>
            <Cell label="Peak memory" numeric>
              {best && formatBytes(best.predicted.peakMemoryBytes)}
            </Cell>
            <Cell className="plan-cell">
              {best ? (
                <PlanText plan={best.plan} />
              ) : (
                <span className="text-quiet">None: {sentence(reason ?? "no plan is feasible")}</span>
              )}
            </Cell>
          </Row>
        ))}
      </Body>
    </Table>
  );
}

/** The best plans of a sweep as points of two charts. */
function useSweepPoints(rows: SweepAnswer["rows"], format: (value: number) => string) {
  return useMemo(() => {
    const of = (value: (best: Candidate) => number): XyPoint[] =>
      rows.map(({ value: x, best, reason }) => ({
        x,
        y: best === null ? null : value(best),
        title: `${format(x)}: ${best === null ? (reason ?? "no plan") : about(best)}`,
      }));
    const unit = memoryUnit(rows.flatMap(({ best }) => best?.predicted.peakMemoryBytes ?? []));
    return {
      unit,
      rate: of(({ predicted }) => predicted.tokensPerGpuPerSecond),
      memory: of(({ predicted }) => predicted.peakMemoryBytes / unit.size),
    };
  }, [rows, format]);
}

function SweepCharts({
  axis,
  points,
  format,
  room,
}: Pick<SweepAnswer, "axis"> & {
  points: ReturnType<typeof useSweepPoints>;
  format: (value: number) => string;
  room: Room | undefined;
}) {
  const limit = useMemo(
    () =>
      room === undefined || axis === "memory"
        ? undefined
        : {
            value: room.limitBytes / points.unit.size,
            label: room.keptBytes > 0 ? "what plans may use" : "what a GPU has",
          },
    [room, axis, points],
  );
  const { name, unit } = AXIS_WORDS[axis];
  const xLabel = `${name}, ${unit}`;
  return (
    <>
      <XyChart
        label="Tokens a second and GPU, predicted"
        points={points.rate}
        xLabel={xLabel}
        formatX={format}
        formatY={plain}
        logX
      />
      <XyChart
        label="Peak memory of the fullest GPU, predicted"
        points={points.memory}
        xLabel={xLabel}
        formatX={format}
        formatY={points.unit.format}
        logX
        limit={limit}
      />
    </>
  );
}

function Sweep({
  outcome,
  room,
  name,
}: {
  outcome: Extract<Outcome, { kind: "sweep" }>;
  room: Room | undefined;
  name: string;
}) {
  const { axis, rows } = outcome.answer;
  const format = useMemo(() => ofAxis(axis), [axis]);
  const points = useSweepPoints(rows, format);
  const word = AXIS_WORDS[axis].name;
  const any = rows.some(({ best }) => best !== null);
  const none = rows.some(({ best }) => best === null);
  return (
    <Result
      title={`The best plan by ${word.charAt(0).toLowerCase()}${word.slice(1)}`}
      name={`${name}-${axis}`}
      csv={rows.map(({ value, tokensPerSecond, feasible, reason, best }) => ({
        [axis]: value,
        tokensPerSecond,
        foundToFit: feasible,
        ...csvOf(best),
        reason,
      }))}
      {...(any ? { charts: <SweepCharts axis={axis} points={points} format={format} room={room} /> } : {})}
    >
      {none && (
        <Text size="sm" c="dimmed" mb="xs">
          {any
            ? "× no plan: the table says why."
            : "There is a plan at none of these values: the table says why."}
        </Text>
      )}
      <SweepTable axis={axis} rows={rows} format={format} />
    </Result>
  );
}

/** What is left free of a GPU, and whether that was asked for. */
const leftOf = (bytes: number, { limitBytes, keptBytes }: Room): string =>
  `${formatBytes(limitBytes - bytes)} left, ${keptBytes > 0 ? `beside ${formatBytes(keptBytes)} of headroom` : "without headroom"}`;

function Largest({
  outcome,
  room,
  name,
}: {
  outcome: Extract<Outcome, { kind: "largest" }>;
  room: Room | undefined;
  name: string;
}) {
  const { best, next, sequenceLengthTokens, globalBatchTokens, tried } = outcome.answer;
  return (
    <Result
      title="The longest sequence"
      name={`${name}-longest-sequence`}
      csv={[
        {
          sequenceLengthTokens,
          globalBatchTokens,
          ...csvOf(best),
          next: next.sequenceLengthTokens,
          reason: next.reason,
        },
      ]}
    >
      {best ? (
        <div className="answer">
          <Text className="headline">{formatInteger(sequenceLengthTokens)} tokens</Text>
          <PlanText plan={best.plan} />
          <Facts
            items={[
              {
                name: "Step time",
                value: formatSeconds(best.predicted.stepTimeSeconds),
                ...(best.predicted.stepTimeRangeSeconds
                  ? { note: formatSecondsRange(best.predicted.stepTimeRangeSeconds) }
                  : {}),
              },
              {
                name: "Throughput",
                value: `${formatRate(best.predicted.tokensPerGpuPerSecond)} tokens/s`,
                note: "a GPU",
              },
              {
                name: "Peak memory",
                value: formatBytes(best.predicted.peakMemoryBytes),
                ...(room ? { note: leftOf(best.predicted.peakMemoryBytes, room) } : {}),
              },
              {
                name: "Batch",
                value: `${formatInteger(globalBatchTokens)} tokens`,
                note: "in place of the job’s",
              },
              { name: "Lengths tried", value: formatInteger(tried) },
            ]}
          />
          <Text size="sm">
            At {formatInteger(next.sequenceLengthTokens)} tokens: {sentence(next.reason)}
          </Text>
        </div>
      ) : (
        <Alert
          color="yellow"
          title={
            next.leastSequences === undefined
              ? `Not even ${formatInteger(next.sequenceLengthTokens)} tokens fit`
              : "The step cannot be divided"
          }
        >
          {sentence(next.reason)}
          {next.leastSequences === undefined
            ? null
            : ` Give ${formatInteger(next.leastSequences)} as Sequences, the fewest that can be divided, or leave more of the job’s plan free.`}
        </Alert>
      )}
    </Result>
  );
}

/** Rows of a front that people read at once; its chart and its CSV have all. */
const ROWS_OF_FRONT = 20;

function FrontTable({ plans }: { plans: readonly Candidate[] }) {
  return (
    <Table label="Plans of the front" narrow="cards">
      <Head>
        <Row>
          <Column numeric>Peak memory</Column>
          <Column numeric>Step time</Column>
          <Column numeric>Tokens/s a GPU</Column>
          <Column>Plan</Column>
        </Row>
      </Head>
      <Body>
        {plans.map((candidate) => (
          <Row key={planLabel(candidate.plan)}>
            <th role="rowheader" scope="row" className="numeric card-title">
              {formatBytes(candidate.predicted.peakMemoryBytes)}
            </th>
            <Cell label="Step time" numeric>
              <StepTime best={candidate} />
            </Cell>
            <Cell label="Tokens/s a GPU" numeric>
              {formatRate(candidate.predicted.tokensPerGpuPerSecond)}
            </Cell>
            <Cell className="plan-cell">
              <PlanText plan={candidate.plan} />
            </Cell>
          </Row>
        ))}
      </Body>
    </Table>
  );
}

function Pareto({ outcome, name }: { outcome: Extract<Outcome, { kind: "pareto" }>; name: string }) {
  const { front, isWhole } = outcome.answer;
  const unit = useMemo(() => memoryUnit(front.map(({ predicted }) => predicted.peakMemoryBytes)), [front]);
  const points = useMemo(
    () =>
      [...front]
        .sort((a, b) => a.predicted.peakMemoryBytes - b.predicted.peakMemoryBytes)
        .map((candidate) => ({
          x: candidate.predicted.peakMemoryBytes / unit.size,
          y: candidate.predicted.stepTimeSeconds,
          title: about(candidate),
        })),
    [front, unit],
  );
  const [showsAll, setShowsAll] = useState(false);
  const sample = useMemo(() => frontSample(front, ROWS_OF_FRONT), [front]);
  const spansDecade = points.length > 1 && (points.at(-1)?.x ?? 0) >= 10 * (points[0]?.x ?? 1);
  if (front.length === 0)
    return (
      <Alert color="yellow" title="No plan is feasible">
        The job does not fit on its cluster, or does not divide over it. “Plan” says what rejected the plans.
      </Alert>
    );
  return (
    <Result
      title="Time against memory"
      name={`${name}-time-against-memory`}
      csv={front.map(csvOf)}
      charts={
        <XyChart
          label="Time of a step, predicted, by peak memory of the fullest GPU"
          points={points}
          xLabel="Peak memory of the fullest GPU"
          formatX={unit.format}
          formatY={formatSeconds}
          logX={spansDecade}
          steps
        />
      }
    >
      <Text size="sm" c="dimmed" mb="xs">
        {front.length === 1
          ? "One plan: every other one is slower and needs as much memory."
          : `${formatCounted(front.length, "Pareto-optimal plan")}: each other plan is slower or needs more memory than one of them.`}
        {!isWhole && " There are further ones, which are slower and smaller."}
      </Text>
      {sample.length < front.length && (
        <Group gap="sm" mb="xs">
          <Text size="sm">
            {showsAll
              ? `All ${formatInteger(front.length)} are shown.`
              : `${formatInteger(sample.length)} of them are shown, a step of memory apart.`}
          </Text>
          <Button size="compact-sm" variant="default" onClick={() => setShowsAll(!showsAll)}>
            {showsAll ? `Show ${formatInteger(sample.length)}` : `Show all ${formatInteger(front.length)}`}
          </Button>
        </Group>
      )}
      <div className={showsAll ? "tall-table" : undefined}>
        <FrontTable plans={showsAll ? front : sample} />
      </div>
    </Result>
  );
}

function InTime({ choice, cheapest }: { choice: ClusterChoiceAnswer; cheapest: ClusterChoiceAnswer | null }) {
  if (choice.nodes === cheapest?.nodes) return <Badge tone="good">Cheapest in time</Badge>;
  return choice.meetsDeadline ? <Badge tone="waiting">In time</Badge> : <Badge tone="bad">Too late</Badge>;
}

type ClusterAnswer = Extract<Outcome, { kind: "cluster" }>["answer"];

function ClusterTable({ cheapest, considered }: Pick<ClusterAnswer, "cheapest" | "considered">) {
  const priced = considered.some(({ cost }) => cost !== null);
  return (
    <Table label="Clusters considered" narrow="cards">
      <Head>
        <Row>
          <Column numeric>GPUs</Column>
          <Column numeric>Nodes</Column>
          <Column numeric>Time</Column>
          <Column numeric>GPU hours</Column>
          {priced && <Column numeric>Cost</Column>}
          <Column>Deadline</Column>
          <Column>Best plan</Column>
        </Row>
      </Head>
      <Body>
        {considered.map((choice) => (
          <Row
            key={choice.nodes}
            name={String(choice.nodes)}
            className={choice.nodes === cheapest?.nodes ? "row-chosen" : undefined}
          >
            <th role="rowheader" scope="row" className="numeric card-title">
              {formatInteger(choice.gpus)}
            </th>
            <Cell label="Nodes" numeric>
              {formatInteger(choice.nodes)}
            </Cell>
            <Cell label="Time" numeric>
              {formatSpan(choice.seconds * 1000)}
            </Cell>
            <Cell label="GPU hours" numeric>
              {formatInteger(choice.gpuHours)}
            </Cell>
            {priced && (
              <Cell label="Cost" numeric>
                {choice.cost === null ? null : formatInteger(choice.cost)}
              </Cell>
            )}
            <Cell label="Deadline">
              <InTime choice={choice} cheapest={cheapest} />
            </Cell>
            <Cell className="plan-cell">
              <PlanText plan={choice.best.plan} />
            </Cell>
          </Row>
        ))}
      </Body>
    </Table>
  );
}

function Clusters({ outcome, name }: { outcome: Extract<Outcome, { kind: "cluster" }>; name: string }) {
  const {
    answer: { cheapest, considered },
    seconds,
  } = outcome;
  const points = useMemo(() => {
    const of = (value: (choice: ClusterChoiceAnswer) => number): XyPoint[] =>
      considered.map((choice) => ({
        x: choice.gpus,
        y: value(choice),
        title: `${formatCounted(choice.gpus, "GPU")}: ${about(choice.best)}`,
      }));
    return { days: of((choice) => choice.seconds / 86_400), hours: of(({ gpuHours }) => gpuHours) };
  }, [considered]);
  const deadline = useMemo(() => ({ value: seconds / 86_400, label: "deadline" }), [seconds]);
  const days = (value: number): string => `${plain(value)} d`;
  if (considered.length === 0)
    return (
      <Alert color="yellow" title="No cluster was found that trains this job">
        No plan is feasible on any of the sizes that were considered.
      </Alert>
    );
  return (
    <Result
      title="The cheapest cluster"
      name={`${name}-clusters`}
      csv={considered.map(({ best, ...choice }) => ({ ...choice, ...csvOf(best) }))}
      charts={
        <>
          <XyChart
            label="Days of training, predicted"
            points={points.days}
            xLabel="GPUs"
            formatX={formatInteger}
            formatY={days}
            logX
            limit={deadline}
          />
          <XyChart
            label="GPU hours, predicted"
            points={points.hours}
            xLabel="GPUs"
            formatX={formatInteger}
            formatY={plain}
            logX
          />
        </>
      }
    >
      <Text mb="xs" fw={600}>
        {cheapest
          ? `The cheapest cluster in time: ${formatCounted(cheapest.gpus, "GPU")} on ${formatCounted(cheapest.nodes, "node")}, ${formatSpan(cheapest.seconds * 1000)}, ${formatCounted(Math.round(cheapest.gpuHours), "GPU hour")}.`
          : "No cluster that was considered meets the deadline."}
      </Text>
      <ClusterTable cheapest={cheapest} considered={considered} />
      <Text size="sm" c="dimmed" mt="xs">
        Time is that of the steps: checkpoints and lost ranks come on top.
      </Text>
    </Result>
  );
}

export function WhatIfResult({
  outcome,
  room,
  jobName,
}: {
  outcome: Outcome;
  room: Room | undefined;
  jobName: string;
}) {
  const name = fileName(jobName);
  switch (outcome.kind) {
    case "sweep":
      return <Sweep outcome={outcome} room={room} name={name} />;
    case "largest":
      return <Largest outcome={outcome} room={room} name={name} />;
    case "pareto":
      return <Pareto outcome={outcome} name={name} />;
    case "cluster":
      return <Clusters outcome={outcome} name={name} />;
  }
}
