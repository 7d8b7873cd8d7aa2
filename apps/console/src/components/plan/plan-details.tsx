import { formatRuns, type Measurement } from "@internevo/domain";
import { Text } from "@mantine/core";
import type { PlanRow } from "../../data/plan-rows.ts";
import {
  formatBytes,
  formatInteger,
  formatPercent,
  formatRate,
  formatSeconds,
  formatSecondsRange,
} from "../../text/format.ts";
import {
  explainPlan,
  FAILURE_WORDS,
  fieldWords,
  lineName,
  linesBySize,
  TIME_WORDS,
  UTILISATION_WORDS,
} from "../../text/words.ts";
import { Facts } from "../page.tsx";

function Breakdown({
  title,
  items,
  format,
  measured,
}: {
  title: string;
  items: [string, number][];
  format: (value: number) => string;
  measured?: ReadonlyMap<string, number> | undefined;
}) {
  return (
    <table className="mini-table" aria-label={title}>
      <thead>
        <tr>
          <th scope="col">{title}</th>
          <th scope="col" className="numeric">
            Predicted
          </th>
          {measured && (
            <th scope="col" className="numeric">
              Measured
            </th>
          )}
        </tr>
      </thead>
      <tbody>
        {items.map(([name, value]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td className="numeric">{format(value)}</td>
            {measured && (
              <td className="numeric">{measured.has(name) ? format(measured.get(name) ?? 0) : "–"}</td>
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** What a plan does, in sentences. */
function PlanWords({ candidate: { plan, placement, tied } }: Pick<PlanRow, "candidate">) {
  const nodes = Object.entries(placement.nodesPerGroup);
  return (
    <>
      {explainPlan(plan).map((sentence) => (
        <Text key={sentence} size="sm">
          {sentence}
        </Text>
      ))}
      <Text size="sm" mt={6}>
        Ranks are ordered{" "}
        {placement.rankOrder.map(fieldWords).join(", then ").toLowerCase() || "as they come"}
        {nodes.length > 0 &&
          `. Nodes that each group spans: ${nodes.map(([name, count]) => `${fieldWords(name).toLowerCase()} ${formatInteger(count)}`).join(", ")}`}
        .
      </Text>
      {tied !== undefined && (
        <Text size="sm" mt={6}>
          {tied === 1 ? "One further plan" : `${tied} further plans`} with the same ranks, shards and batches{" "}
          {tied === 1 ? "takes" : "take"} exactly as long.
        </Text>
      )}
    </>
  );
}

function PlanFacts({
  predicted,
  measured,
}: {
  predicted: PlanRow["candidate"]["predicted"];
  measured: Measurement | undefined;
}) {
  return (
    <Facts
      items={[
        ...(predicted.stepTimeRangeSeconds
          ? [
              {
                name: "Predicted step time",
                value: formatSeconds(predicted.stepTimeSeconds),
                note: `${formatSecondsRange(predicted.stepTimeRangeSeconds)} by the profile's spread`,
              },
            ]
          : []),
        { name: UTILISATION_WORDS.mfu, value: formatPercent(predicted.mfu) },
        { name: UTILISATION_WORDS.mfuFullAttention, value: formatPercent(predicted.mfuFullAttention) },
        { name: UTILISATION_WORDS.hfu, value: formatPercent(predicted.hfu) },
        {
          name: UTILISATION_WORDS.speedOfLight,
          value: formatPercent(predicted.speedOfLight),
          note: "time of its kernels at the profiled peak, over the step time",
        },
        ...(measured
          ? [
              {
                name: "Measured steps",
                value: measured.steps,
                note: `p10 ${formatSeconds(measured.stepTimeSecondsP10)}, p90 ${formatSeconds(measured.stepTimeSecondsP90)}${formatRuns(measured)}`,
              },
              { name: "Measured communication", value: formatSeconds(measured.communicationSeconds) },
              { name: "Resident peak", value: formatBytes(measured.residentPeakBytes) },
              {
                name: "Measured rate",
                value: `${formatRate(measured.tokensPerGpuPerSecond)} tokens/s`,
                note: "a rank",
              },
            ]
          : []),
      ]}
    />
  );
}

/** Everything that is known of one plan. */
export function PlanDetails({ row }: { row: PlanRow }) {
  const { predicted } = row.candidate;
  const measured = row.trial?.measured ?? undefined;
  const lines = linesBySize([predicted.memory, measured?.memory ?? {}]);
  return (
    <div className="plan-details">
      <div>
        <PlanWords candidate={row.candidate} />
        {row.trial?.failure && (
          <Text size="sm" mt={6} className="text-bad">
            {FAILURE_WORDS[row.trial.failure.code]}: {row.trial.failure.message}
          </Text>
        )}
        <PlanFacts predicted={predicted} measured={measured} />
      </div>
      <Breakdown
        title="Time of a step"
        format={formatSeconds}
        items={(Object.keys(TIME_WORDS) as (keyof typeof TIME_WORDS)[])
          .filter((key) => (predicted.time[key] ?? 0) > 0)
          .map((key) => [TIME_WORDS[key], predicted.time[key] ?? 0])}
      />
      <Breakdown
        title="Memory of the fullest rank"
        format={formatBytes}
        items={lines.map((line) => [lineName(line), predicted.memory[line] ?? 0])}
        measured={
          measured && new Map(Object.entries(measured.memory).map(([line, bytes]) => [lineName(line), bytes]))
        }
      />
    </div>
  );
}
