import type { PlanChoice, PlanMemoryAnswer, WhyNotAnswer } from "@internevo/contracts";
import { Alert, Text } from "@mantine/core";
import { usePlanMemory, useWhyNot, type Subject } from "../../data/advice.ts";
import { measuredStandingWords, withoutTrainer } from "@internevo/domain";
import {
  formatBytes,
  formatInteger,
  formatPercent,
  formatRate,
  formatSeconds,
  formatSecondsRange,
  sentence,
} from "../../text/format.ts";
import {
  lineName,
  linesBySize,
  memoryLineLook,
  REJECTION_WORDS,
  UTILISATION_WORDS,
} from "../../text/words.ts";
import { StackedBars } from "../chart/stacked-bars.tsx";
import { Facts } from "../page.tsx";
import { Failed, Loading } from "../states.tsx";
import { Changes } from "./field-changes.tsx";
import { PlanText } from "./plan-text.tsx";

type Prediction = NonNullable<WhyNotAnswer["predicted"]>;

function Figures({ predicted, limitBytes }: { predicted: Prediction; limitBytes: number }) {
  const left = limitBytes - predicted.peakMemoryBytes;
  return (
    <Facts
      items={[
        {
          name: "Step time",
          value: formatSeconds(predicted.stepTimeSeconds),
          ...(predicted.stepTimeRangeSeconds
            ? { note: formatSecondsRange(predicted.stepTimeRangeSeconds) }
            : {}),
        },
        {
          name: "Throughput",
          value: `${formatRate(predicted.tokensPerGpuPerSecond)} tokens/s`,
          note: "a rank",
        },
        {
          name: "Peak memory",
          value: formatBytes(predicted.peakMemoryBytes),
          note: left < 0 ? `${formatBytes(-left)} too much` : `${formatBytes(left)} left`,
        },
        { name: UTILISATION_WORDS.mfu, value: formatPercent(predicted.mfu) },
      ]}
    />
  );
}

function Verdict({ answer, limitBytes }: { answer: WhyNotAnswer; limitBytes: number }) {
  const { binding, notRunnableReason, standing, smallestChange, predicted, measured } = answer;
  if (binding) {
    return (
      <div className="answer">
        <Alert color="yellow" title={`It cannot run: ${REJECTION_WORDS[binding.reason].name.toLowerCase()}`}>
          {sentence(binding.message.charAt(0).toUpperCase() + binding.message.slice(1))}
        </Alert>
        {predicted && <Figures predicted={predicted} limitBytes={limitBytes} />}
        {smallestChange ? (
          <div className="chosen-plan">
            <Text size="sm" fw={600}>
              The smallest change that makes it feasible
            </Text>
            <PlanText plan={smallestChange.plan} />
            <Changes label="To change" changes={smallestChange.changes} />
            <Figures predicted={smallestChange.predicted} limitBytes={limitBytes} />
          </div>
        ) : (
          <Text size="sm">No plan of this job is feasible on this cluster.</Text>
        )}
      </div>
    );
  }
  if (!predicted) return null;
  const slower = standing ? predicted.stepTimeSeconds / standing.best.predicted.stepTimeSeconds - 1 : 0;
  const isBest = standing === null || standing.best.changes.length === 0;
  const fits = notRunnableReason === null ? "It can run." : "It fits in memory.";
  const longer = slower < 0.0005 ? "as long as" : `${formatPercent(slower)} longer than`;
  return (
    <div className="answer">
      {measured !== null && <Text fw={600}>{measuredStandingWords(measured)}</Text>}
      <Text fw={measured === null ? 600 : 400}>
        {fits} By prediction it {isBest ? "is the best plan" : `takes ${longer} the best plan`}
        {standing &&
          `: rank ${formatInteger(standing.rank)} of the ${formatInteger(standing.of)} families of plans that fit`}
        .
      </Text>
      {notRunnableReason !== null && <Text size="sm">{sentence(withoutTrainer(notRunnableReason))}</Text>}
      <Figures predicted={predicted} limitBytes={limitBytes} />
      {standing && !isBest && (
        <div className="chosen-plan">
          <Text size="sm" fw={600}>
            The best plan by prediction
          </Text>
          <PlanText plan={standing.best.plan} />
          <Changes label="Differences from your plan" changes={standing.best.changes} />
          <Figures predicted={standing.best.predicted} limitBytes={limitBytes} />
        </div>
      )}
    </div>
  );
}

/** Why a plan is not chosen. */
export function WhyNot({
  subject,
  plan,
  limitBytes,
}: {
  subject: Subject;
  plan: PlanChoice;
  limitBytes: number;
}) {
  const query = useWhyNot(subject, plan);
  if (query.data) {
    const { bestOf, excessBytes, plan: found } = query.data;
    return (
      <>
        {bestOf !== undefined && (
          <div className="chosen-plan">
            <Text size="sm" fw={600}>
              {(excessBytes ?? 0) <= 0
                ? `The best of the plans with ${bestOf}`
                : `No plan with ${bestOf} fits. The one that needs least memory`}
            </Text>
            <PlanText plan={found} />
          </div>
        )}
        <Verdict answer={query.data} limitBytes={limitBytes} />
      </>
    );
  }
  return query.isError ? (
    <Failed what="answer" error={query.error} onRetry={() => void query.refetch()} />
  ) : (
    <Loading label="answer" rows={3} />
  );
}

/** Stages that are alike are one bar. */
function stageGroups({
  stages,
}: PlanMemoryAnswer): { label: string; stage: PlanMemoryAnswer["stages"][number] }[] {
  const groups: { first: number; last: number; stage: PlanMemoryAnswer["stages"][number] }[] = [];
  for (const stage of stages) {
    const last = groups.at(-1);
    if (last && JSON.stringify(last.stage.lines) === JSON.stringify(stage.lines)) last.last = stage.stage;
    else groups.push({ first: stage.stage, last: stage.stage, stage });
  }
  if (groups.length === 1)
    return groups.map(({ stage }) => ({ label: stages.length === 1 ? "Every rank" : "Every stage", stage }));
  return groups.map(({ first, last, stage }) => ({
    label: first === last ? `Stage ${first + 1}` : `Stages ${first + 1} – ${last + 1}`,
    stage,
  }));
}

/** What a rank of each stage holds, by line. */
export function StageMemory({ subject, plan }: { subject: Subject; plan: PlanChoice }) {
  const query = usePlanMemory(subject, plan);
  if (!query.data)
    return query.isError ? (
      <Failed what="memory" error={query.error} onRetry={() => void query.refetch()} />
    ) : (
      <Loading label="memory" rows={3} />
    );
  const { limitBytes, stages } = query.data;
  const names = linesBySize(stages.map(({ lines }) => lines));
  return (
    <StackedBars
      title="Memory of a rank by stage and line"
      names={names}
      lookOf={memoryLineLook}
      wordOf={lineName}
      format={formatBytes}
      limit={{ value: limitBytes, label: "Limit" }}
      rowName="Ranks"
      bars={stageGroups(query.data).map(({ label, stage }) => ({
        key: label,
        label,
        labelText: label,
        emphasised: stage.stage === query.data.fullestStage,
        segments: names.map((name) => ({ name, value: stage.lines[name] ?? 0 })),
      }))}
    />
  );
}
