import { REJECTION_REASONS, undividedWords, type PlanningResult } from "@internevo/domain";
import { Text } from "@mantine/core";
import { formatBytes, formatCount, formatInteger, formatPercent, sentence } from "../../text/format.ts";
import { explainPlan, REJECTION_WORDS } from "../../text/words.ts";
import { PlanText } from "./plan-text.tsx";

/** What became of every plan of the space. */
export function Rejections({ planning }: { planning: PlanningResult }) {
  const { evaluated, feasible, rejected, pruned = 0 } = planning.counts;
  const reasons = REJECTION_REASONS.map((reason) => ({ reason, count: rejected[reason] ?? 0 }))
    .filter(({ count }) => count > 0)
    .sort((a, b) => b.count - a.count);
  const undivided = undividedWords(planning);
  const share = (count: number): number => (evaluated > 0 ? count / evaluated : 0);
  return (
    <>
      <Text size="sm" mb="xs">
        <strong>{formatInteger(evaluated)}</strong> plans were considered;{" "}
        <strong>{formatInteger(feasible)}</strong> were found to fit
        {pruned > 0 ? `, ${formatCount(pruned)} were skipped, because the listed plans are faster` : ""}
        {reasons.length > 0 ? `, ${formatCount(evaluated - feasible - pruned)} cannot be carried out:` : "."}
      </Text>
      {reasons.length > 0 && (
        <ul className="reasons" aria-label="Reasons of rejection">
          {reasons.map(({ reason, count }) => (
            <li key={reason} data-reason={reason}>
              <div className="reason-words">
                <strong>{REJECTION_WORDS[reason].name}</strong>
                <span>{REJECTION_WORDS[reason].about}</span>
              </div>
              <div className="reason-figures figures">
                <span>{formatInteger(count)}</span>
                <span className="nothing">{formatPercent(share(count))}</span>
              </div>
              <div className="reason-bar" aria-hidden="true">
                <span style={{ width: `${(100 * share(count)).toFixed(2)}%` }} />
              </div>
            </li>
          ))}
        </ul>
      )}
      {undivided && (
        <Text size="sm">
          <strong>Nothing fits:</strong>{" "}
          {sentence([undivided.message, undivided.remedy].filter((words) => words !== undefined).join("; "))}
        </Text>
      )}
      {planning.closest && (
        <div className="closest">
          <Text size="sm">
            <strong>Nothing fits.</strong> The plan that needs the least memory takes{" "}
            {formatBytes(planning.closest.peakMemoryBytes)} a rank; the limit is{" "}
            {formatBytes(planning.memoryLimitBytes)}:
          </Text>
          <PlanText plan={planning.closest.plan} />
          {explainPlan(planning.closest.plan).map((sentence) => (
            <Text key={sentence} size="sm" c="dimmed">
              {sentence}
            </Text>
          ))}
        </div>
      )}
      {planning.warnings.length > 0 && (
        <>
          <Text size="sm" fw={600} mt="md">
            What the prediction rests on
          </Text>
          <ul className="warnings">
            {planning.warnings.map((warning) => (
              <li key={warning}>{sentence(warning)}</li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}
