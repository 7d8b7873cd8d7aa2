import { planLabel } from "@internevo/domain";
import type { PlanRow } from "../../data/plan-rows.ts";
import { formatBytes, formatSeconds } from "../../text/format.ts";
import { lineName, linesBySize, TIME_WORDS } from "../../text/words.ts";
import { StackedBars } from "../chart/stacked-bars.tsx";

type TimeKey = keyof typeof TIME_WORDS;

const label = (row: PlanRow) => <><span className="bar-rank">{row.rank === undefined ? "–" : `#${row.rank}`}</span> {planLabel(row.candidate.plan)}</>;
const labelText = (row: PlanRow): string => `${row.rank === undefined ? "not runnable yet" : `#${row.rank}`} ${planLabel(row.candidate.plan)}`;

/** Predicted memory of the fullest rank by line, against what a rank has. */
export function MemoryChart({ rows, limitBytes }: { rows: readonly PlanRow[]; limitBytes: number }) {
  const names = linesBySize(rows.map(({ candidate }) => candidate.predicted.memory));
  return (
    <StackedBars
      title="Predicted memory by line"
      names={names}
      wordOf={lineName}
      format={formatBytes}
      limit={{ value: limitBytes, label: "Limit" }}
      markLabel="Measured peak"
      bars={rows.map((row) => ({
        key: row.key, label: label(row), labelText: labelText(row), emphasised: row.chosen,
        mark: row.trial?.measured?.peakMemoryBytes,
        segments: names.map((name) => ({ name, value: row.candidate.predicted.memory[name] ?? 0 })),
      }))}
    />
  );
}

/** Predicted time of a step by cause. */
export function TimeChart({ rows }: { rows: readonly PlanRow[] }) {
  const names = (Object.keys(TIME_WORDS) as TimeKey[]).filter((key) => rows.some(({ candidate }) => candidate.predicted.time[key] > 0));
  return (
    <StackedBars
      title="Predicted time of a step by cause"
      names={names}
      wordOf={(name) => TIME_WORDS[name as TimeKey]}
      format={formatSeconds}
      markLabel="Measured step time"
      bars={rows.map((row) => ({
        key: row.key, label: label(row), labelText: labelText(row), emphasised: row.chosen,
        mark: row.trial?.measured?.stepTimeSeconds,
        segments: names.map((name) => ({ name, value: row.candidate.predicted.time[name] })),
      }))}
    />
  );
}

