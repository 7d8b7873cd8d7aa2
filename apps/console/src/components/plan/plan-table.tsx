import {
  DISTURBED_LEGEND,
  formatMeasuredSeconds,
  isDisturbed,
  noneWithoutTrainer,
  tieWords,
  withoutTrainer,
  type Plan,
} from "@internevo/domain";
import { Text, Tooltip } from "@mantine/core";
import {
  createColumnHelper,
  createSortedRowModel,
  FlexRender,
  rowSortingFeature,
  sortFn_basic,
  tableFeatures,
  useTable,
} from "@tanstack/react-table";
import { useMemo, useState, type ReactNode } from "react";
import {
  compare,
  measuredStepSeconds,
  plannedStepSeconds,
  tiedRows,
  type PlanRow,
} from "../../data/plan-rows.ts";
import {
  formatBytes,
  formatRate,
  formatSeconds,
  formatSecondsRange,
  formatSignedPercent,
  sentence,
} from "../../text/format.ts";
import {
  dimensionsOf,
  dimensionValue,
  FAILURE_WORDS,
  OVERLAP_WORDS,
  overlapWords,
  type Dimension,
} from "../../text/words.ts";
import { Body, Head, Row, Table } from "../data-table.tsx";
import { Badge, TrialStateBadge } from "../state-badge.tsx";
import { PlanDetails } from "./plan-details.tsx";
import { PlanLegend } from "./plan-text.tsx";

const features = tableFeatures({
  rowSortingFeature,
  sortedRowModel: createSortedRowModel(),
  sortFns: { basic: sortFn_basic },
});
const helper = createColumnHelper<typeof features, PlanRow>();

interface ColumnLook {
  /** What a cell is called in the card of a narrow screen. */
  readonly label: string;
  readonly className?: string;
  readonly hint?: string;
}

const figure = (value: number | undefined, format: (value: number) => string): ReactNode =>
  value === undefined ? <span className="nothing">–</span> : format(value);

const Barred = ({ row }: { row: PlanRow }) =>
  row.candidate.runnable ? null : <div className="cell-note">{row.candidate.notRunnableReason}</div>;

function State({ row }: { row: PlanRow }) {
  if (row.chosen) return <Badge tone="good">Chosen</Badge>;
  if (row.trial) return <TrialStateBadge state={row.trial.state} />;
  return row.candidate.runnable ? (
    <Badge tone="waiting">Planned</Badge>
  ) : (
    <Badge tone="quiet">Not runnable</Badge>
  );
}

const LOOKS: Readonly<Record<string, ColumnLook>> = {
  rank: {
    label: "Rank",
    className: "numeric rank",
    hint: "Place among all feasible plans by predicted step time",
  },
  place: {
    label: "Place by measurement",
    className: "numeric",
    hint: "Place among the measured plans by measured step time",
  },
  plannedTime: {
    label: "Step time, predicted",
    className: "numeric group-start",
    hint: "Below it from – to: every measurement of the profile at its 10th and at its 90th percentile, wider where nothing was measured",
  },
  measuredTime: {
    label: "Step time, measured",
    className: "numeric strong",
    hint: "Median of the measured steps",
  },
  timeError: { label: "Step time, error", className: "numeric", hint: "(predicted − measured) / measured" },
  plannedRate: { label: "Tokens/s a rank, predicted", className: "numeric group-start" },
  measuredRate: { label: "Tokens/s a rank, measured", className: "numeric strong" },
  plannedMemory: { label: "Peak memory, predicted", className: "numeric group-start" },
  measuredMemory: { label: "Peak memory, measured", className: "numeric strong" },
  memoryError: {
    label: "Peak memory, error",
    className: "numeric",
    hint: "(predicted − measured) / measured",
  },
  overlap: {
    label: "Overlap",
    className: "overlap",
    hint: "What the forward and the backward pass hide of the communication",
  },
  state: { label: "State", className: "group-start" },
};

const lookOfDimension = ({ symbol, name, meaning }: Dimension): ColumnLook => ({
  label: symbol,
  className: "dimension",
  hint: `${name}: ${meaning}`,
});

const NAMES: Readonly<Record<string, string>> = {
  rank: "#",
  place: "place",
  overlap: "overlap",
  plannedTime: "predicted",
  measuredTime: "measured",
  timeError: "error",
  plannedRate: "predicted",
  measuredRate: "measured",
  plannedMemory: "predicted",
  measuredMemory: "measured",
  memoryError: "error",
  state: "State",
};

function Overlap({ plan }: { plan: Plan }) {
  if (plan.forwardOverlap === plan.backwardOverlap) return <>{OVERLAP_WORDS[plan.forwardOverlap]}</>;
  return (
    <span className="cell-stack">
      <span>
        <span className="nothing">forward</span> {OVERLAP_WORDS[plan.forwardOverlap]}
      </span>
      <span>
        <span className="nothing">backward</span> {OVERLAP_WORDS[plan.backwardOverlap]}
      </span>
    </span>
  );
}

/** The predicted step time, and what it may as well be by the spread of what was measured. */
function PlannedTime({ row, isTied }: { row: PlanRow; isTied: boolean }) {
  const range = row.candidate.predicted.stepTimeRangeSeconds;
  const seconds = formatSeconds(plannedStepSeconds(row));
  if (range === undefined) return <>{seconds}</>;
  return (
    <span className="cell-stack">
      <span>
        {isTied && (
          <>
            <span className="tie">tie</span>{" "}
          </>
        )}
        {seconds}
      </span>
      <span className="cell-range">{formatSecondsRange(range)}</span>
    </span>
  );
}

const timeColumns = (tied: ReadonlySet<string>) => [
  helper.accessor(plannedStepSeconds, {
    id: "plannedTime",
    cell: ({ row }) => <PlannedTime row={row.original} isTied={tied.has(row.original.key)} />,
  }),
  helper.accessor(measuredStepSeconds, {
    id: "measuredTime",
    sortUndefined: "last",
    cell: ({ row: { original } }) => {
      const measured = original.trial?.measured;
      return figure(measuredStepSeconds(original), () => (measured ? formatMeasuredSeconds(measured) : ""));
    },
  }),
  helper.accessor(({ place }) => place, {
    id: "place",
    sortUndefined: "last",
    cell: ({ row }) => figure(row.original.place, String),
  }),
  helper.accessor((row) => compare(row).timeError, {
    id: "timeError",
    sortUndefined: "last",
    cell: ({ row }) => figure(compare(row.original).timeError, formatSignedPercent),
  }),
];

const RATE_COLUMNS = [
  helper.accessor(({ candidate }) => candidate.predicted.tokensPerGpuPerSecond, {
    id: "plannedRate",
    cell: ({ row }) => formatRate(row.original.candidate.predicted.tokensPerGpuPerSecond),
  }),
  helper.accessor(({ trial }) => trial?.measured?.tokensPerGpuPerSecond, {
    id: "measuredRate",
    sortUndefined: "last",
    cell: ({ row }) => figure(row.original.trial?.measured?.tokensPerGpuPerSecond, formatRate),
  }),
];

const MEMORY_COLUMNS = [
  helper.accessor(({ candidate }) => candidate.predicted.peakMemoryBytes, {
    id: "plannedMemory",
    cell: ({ row }) => formatBytes(row.original.candidate.predicted.peakMemoryBytes),
  }),
  helper.accessor(({ trial }) => trial?.measured?.peakMemoryBytes, {
    id: "measuredMemory",
    sortUndefined: "last",
    cell: ({ row }) => figure(row.original.trial?.measured?.peakMemoryBytes, formatBytes),
  }),
  helper.accessor((row) => compare(row).memoryError, {
    id: "memoryError",
    sortUndefined: "last",
    cell: ({ row }) => figure(compare(row.original).memoryError, formatSignedPercent),
  }),
];

function columnsOf(
  withMeasured: boolean,
  withReasons: boolean,
  withOverlap: boolean,
  planDimensions: readonly Dimension[],
  tied: ReadonlySet<string>,
) {
  const number = helper.accessor(({ rank }) => rank, { id: "rank" });
  const dimensions = planDimensions.map(({ key, symbol }) =>
    helper.accessor(({ candidate }) => Number(dimensionValue(candidate.plan, key)), {
      id: key,
      header: symbol,
      cell: ({ row }) => dimensionValue(row.original.candidate.plan, key),
    }),
  );
  const time = timeColumns(tied);
  // The reason has room beside the state where nothing was measured.
  const state = helper.display({
    id: "state",
    cell: ({ row }) => (
      <>
        <State row={row.original} />
        {withReasons && <Barred row={row.original} />}
      </>
    ),
  });
  const overlap = withOverlap
    ? [
        helper.accessor(({ candidate }) => overlapWords(candidate.plan), {
          id: "overlap",
          cell: ({ row }) => <Overlap plan={row.original.candidate.plan} />,
        }),
      ]
    : [];
  const kept = <T,>(group: T[]): T[] => (withMeasured ? group : group.slice(0, 1));
  return {
    columns: helper.columns([
      number,
      ...dimensions,
      ...overlap,
      ...kept(time),
      ...kept(RATE_COLUMNS),
      ...kept(MEMORY_COLUMNS),
      state,
    ]),
    spans: {
      dimensions: dimensions.length + overlap.length,
      time: kept(time).length,
      rate: kept(RATE_COLUMNS).length,
      memory: kept(MEMORY_COLUMNS).length,
    },
  };
}

function Note({ row }: { row: PlanRow }) {
  const failure = row.trial?.failure;
  if (failure)
    return (
      <>
        {FAILURE_WORDS[failure.code]}
        {failure.rank === undefined ? "" : ` on rank ${failure.rank}`}: {sentence(failure.message)}
        {failure.remedy === undefined ? "" : ` What to do: ${sentence(failure.remedy)}`}
      </>
    );
  return (
    <>
      Better by prediction, but not tried.{" "}
      {sentence(withoutTrainer(row.candidate.notRunnableReason ?? "its plan"))}
    </>
  );
}

const hasNote = (row: PlanRow, withMeasured: boolean): boolean =>
  Boolean(row.trial?.failure) || (withMeasured && !row.candidate.runnable && !row.trial);

/** Why none of the plans runs, where it is the same for all of them: nobody reads it ten times. */
function sharedReason(rows: readonly PlanRow[]): string | undefined {
  const [first, ...others] = rows.map(({ candidate, trial }) =>
    candidate.runnable || trial ? null : candidate.notRunnableReason,
  );
  return typeof first === "string" && others.length > 0 && others.every((reason) => reason === first)
    ? first
    : undefined;
}

type Looks = Readonly<Record<string, ColumnLook>>;
type PlanTableModel = ReturnType<typeof useTable<typeof features, PlanRow>>;
type PlanHeader = ReturnType<PlanTableModel["getHeaderGroups"]>[number]["headers"][number];
type PlanModelRow = ReturnType<PlanTableModel["getRowModel"]>["rows"][number];

/** What the columns below one head are about. */
function GroupHead({ spans }: { spans: ReturnType<typeof columnsOf>["spans"] }) {
  return (
    <tr role="row" className="group-head">
      <td role="cell" />
      <th role="columnheader" scope="colgroup" colSpan={spans.dimensions}>
        Plan
      </th>
      <th role="columnheader" scope="colgroup" colSpan={spans.time} className="group-start">
        Step time
      </th>
      <th role="columnheader" scope="colgroup" colSpan={spans.rate} className="group-start">
        Tokens/s a rank
      </th>
      <th role="columnheader" scope="colgroup" colSpan={spans.memory} className="group-start">
        Peak memory
      </th>
      <td role="cell" className="group-start" />
    </tr>
  );
}

const SORT_WORDS = { asc: "ascending", desc: "descending" } as const;
const SORT_MARKS = { asc: "▲", desc: "▼" } as const;

function HeadCell({ header, look }: { header: PlanHeader; look: ColumnLook | undefined }) {
  const sorted = header.column.getIsSorted();
  const name = NAMES[header.column.id] ?? <FlexRender header={header} />;
  return (
    <th
      role="columnheader"
      scope="col"
      className={look?.className}
      aria-sort={sorted ? SORT_WORDS[sorted] : undefined}
    >
      {header.column.getCanSort() ? (
        <Tooltip
          label={look?.hint ?? look?.label ?? ""}
          multiline
          maw={280}
          withArrow
          events={{ hover: true, focus: true, touch: false }}
        >
          <button
            type="button"
            className="sort-button"
            aria-label={
              look?.label.length === 1 || look?.className === "dimension"
                ? `${look.label}, ${look.hint ?? ""}`
                : look?.label
            }
            onClick={header.column.getToggleSortingHandler()}
          >
            {name}
            <span aria-hidden="true" className="sort-mark">
              {sorted ? SORT_MARKS[sorted] : ""}
            </span>
          </button>
        </Tooltip>
      ) : (
        name
      )}
    </th>
  );
}

function RankToggle({ rank, expanded, onToggle }: { rank: number; expanded: boolean; onToggle: () => void }) {
  return (
    <button
      type="button"
      className="row-toggle"
      aria-expanded={expanded}
      aria-label={`Rank ${rank}, ${expanded ? "hide" : "show"} details`}
      onClick={onToggle}
    >
      <span className="chevron" aria-hidden="true">
        {expanded ? "▾" : "▸"}
      </span>
      {rank}
    </button>
  );
}

/** A plan's row, its note, and its details when it is open. */
function PlanRows({
  row,
  looks,
  columns,
  hasNote,
  expanded,
  onToggle,
}: {
  row: PlanModelRow;
  looks: Looks;
  columns: number;
  hasNote: boolean;
  expanded: boolean;
  onToggle: () => void;
}) {
  const { key, rank, candidate, chosen, trial } = row.original;
  const quiet = !candidate.runnable && !trial;
  return (
    <>
      <Row
        name={key}
        className={`${chosen ? "row-chosen" : ""} ${quiet ? "row-quiet" : ""} ${hasNote || expanded ? "row-continued" : ""}`}
      >
        {row.getAllCells().map((cell) => {
          const look = looks[cell.column.id];
          return (
            <td
              key={cell.id}
              role="cell"
              data-column={cell.column.id}
              data-label={look?.label}
              className={look?.className}
            >
              {cell.column.id === "rank" ? (
                <RankToggle rank={rank} expanded={expanded} onToggle={onToggle} />
              ) : (
                <FlexRender cell={cell} />
              )}
            </td>
          );
        })}
      </Row>
      {hasNote && (
        <tr role="row" className={`note-row ${expanded ? "row-continued" : ""}`}>
          <td role="cell" colSpan={columns} className={trial?.failure ? "text-bad" : "text-quiet"}>
            <Note row={row.original} />
          </td>
        </tr>
      )}
      {expanded && (
        <tr role="row" className="details-row">
          <td role="cell" colSpan={columns}>
            <PlanDetails row={row.original} />
          </td>
        </tr>
      )}
    </>
  );
}

/** The rows that are open, and what opens or closes one. */
function useOpenRows() {
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const toggle = (key: string): void =>
    setOpen((at) => {
      const next = new Set(at);
      if (!next.delete(key)) next.add(key);
      return next;
    });
  return [open, toggle] as const;
}

/** What the ranges and the marks of the table mean. */
function Marks({ rows, tied }: { rows: readonly PlanRow[]; tied: ReadonlySet<string> }) {
  return (
    <>
      {rows.some(({ candidate }) => candidate.predicted.stepTimeRangeSeconds) && (
        <Text size="sm" c="dimmed" mt="xs">
          Below a predicted step time: from – to, with every measurement of the profile at its 10th and at its
          90th percentile, wider where nothing was measured.
          {tied.size > 1 && ` ${tieWords(tied.size, rows.length) ?? ""}`}
        </Text>
      )}
      {rows.some(({ trial }) => trial?.measured && isDisturbed(trial.measured)) && (
        <Text size="sm" c="dimmed" mt="xs">
          {DISTURBED_LEGEND}
        </Text>
      )}
    </>
  );
}

/** The plans, predicted beside measured; a row opens to everything that is known of it. */
export function PlanTable({
  rows,
  withMeasured,
  label,
}: {
  rows: PlanRow[];
  withMeasured: boolean;
  label: string;
}) {
  const withOverlap = rows.some(({ candidate }) => overlapWords(candidate.plan) !== OVERLAP_WORDS.none);
  const dimensions = useMemo(() => dimensionsOf(rows.map(({ candidate }) => candidate.plan)), [rows]);
  const looks = useMemo(
    (): Looks => ({
      ...LOOKS,
      ...Object.fromEntries(dimensions.map((dimension) => [dimension.key, lookOfDimension(dimension)])),
    }),
    [dimensions],
  );
  const tied = useMemo(() => tiedRows(rows), [rows]);
  const reason = withMeasured ? undefined : sharedReason(rows);
  const withReasons = !withMeasured && reason === undefined;
  const { columns, spans } = useMemo(
    () => columnsOf(withMeasured, withReasons, withOverlap, dimensions, tied),
    [withMeasured, withReasons, withOverlap, dimensions, tied],
  );
  const table = useTable({
    features,
    columns,
    data: rows,
    getRowId: ({ key }) => key,
    enableSortingRemoval: true,
    sortDescFirst: false,
  });
  const [open, toggle] = useOpenRows();
  const leaf = table.getHeaderGroups()[0]?.headers ?? [];
  return (
    <>
      {reason !== undefined && (
        <Text size="sm" mb="xs">
          {sentence(noneWithoutTrainer(reason))}
        </Text>
      )}
      <Table label={label} narrow="cards" className="plan-table">
        <Head>
          <GroupHead spans={spans} />
          <Row>
            {leaf.map((header) => (
              <HeadCell key={header.id} header={header} look={looks[header.column.id]} />
            ))}
          </Row>
        </Head>
        <Body>
          {table.getRowModel().rows.map((row) => (
            <PlanRows
              key={row.original.key}
              row={row}
              looks={looks}
              columns={leaf.length}
              hasNote={hasNote(row.original, withMeasured)}
              expanded={open.has(row.original.key)}
              onToggle={() => toggle(row.original.key)}
            />
          ))}
        </Body>
      </Table>
      <Marks rows={rows} tied={tied} />
      <PlanLegend dimensions={dimensions} />
    </>
  );
}
