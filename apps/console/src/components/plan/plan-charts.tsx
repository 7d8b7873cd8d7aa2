import { planLabel, seriesLook } from "@internevo/domain";
import { useMemo } from "react";
import type { PlanRow } from "../../data/plan-rows.ts";
import { formatBytes, formatSeconds } from "../../text/format.ts";
import { planLabels } from "../../text/plan-labels.ts";
import { lineName, linesBySize, memoryLineLook, TIME_WORDS } from "../../text/words.ts";
import { StackedBars } from "../chart/stacked-bars.tsx";

type TimeKey = keyof typeof TIME_WORDS;
const TIME_KEYS = Object.keys(TIME_WORDS) as TimeKey[];

const labelText = (row: PlanRow): string => `#${row.rank} ${planLabel(row.candidate.plan)}`;

/** The bars' labels, by what tells the plans apart, and a line that says the rest. */
function useLabels(rows: readonly PlanRow[]) {
  return useMemo(() => {
    const { common, own } = planLabels(rows.map(({ candidate }) => candidate.plan));
    const labels = new Map(
      rows.map((row, index) => [
        row,
        <>
          <span className="bar-rank">#{row.rank}</span> {own[index]}
        </>,
      ]),
    );
    return {
      labelOf: (row: PlanRow) => labels.get(row),
      note: common === "" ? undefined : <p className="bars-note">All of them: {common}</p>,
    };
  }, [rows]);
}

/** Predicted memory of the fullest rank by line, against what a rank has. */
export function MemoryChart({ rows, limitBytes }: { rows: readonly PlanRow[]; limitBytes: number }) {
  const { labelOf, note } = useLabels(rows);
  const names = linesBySize(rows.map(({ candidate }) => candidate.predicted.memory));
  return (
    <StackedBars
      title="Predicted memory by line"
      names={names}
      lookOf={memoryLineLook}
      wordOf={lineName}
      format={formatBytes}
      limit={{ value: limitBytes, label: "Limit" }}
      markLabel="Measured peak"
      note={note}
      bars={rows.map((row) => ({
        key: row.key,
        label: labelOf(row),
        labelText: labelText(row),
        emphasised: row.chosen,
        mark: row.trial?.measured?.peakMemoryBytes,
        segments: names.map((name) => ({ name, value: row.candidate.predicted.memory[name] ?? 0 })),
      }))}
    />
  );
}

/** Predicted time of a step by cause. */
export function TimeChart({ rows }: { rows: readonly PlanRow[] }) {
  const { labelOf, note } = useLabels(rows);
  const names = TIME_KEYS.filter((key) =>
    rows.some(({ candidate }) => (candidate.predicted.time[key] ?? 0) > 0),
  );
  return (
    <StackedBars
      title="Predicted time of a step by cause"
      names={names}
      lookOf={(name) => seriesLook(TIME_KEYS.indexOf(name as TimeKey))}
      wordOf={(name) => TIME_WORDS[name as TimeKey]}
      format={formatSeconds}
      markLabel="Measured step time"
      note={note}
      bars={rows.map((row) => ({
        key: row.key,
        label: labelOf(row),
        labelText: labelText(row),
        emphasised: row.chosen,
        mark: row.trial?.measured?.stepTimeSeconds,
        segments: names.map((name) => ({ name, value: row.candidate.predicted.time[name] ?? 0 })),
      }))}
    />
  );
}
