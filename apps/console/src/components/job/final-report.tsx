import type { Report } from "@internevo/domain";
import { Alert } from "@mantine/core";
import {
  formatCorrelation,
  formatCounted,
  formatInteger,
  formatLoss,
  formatPercent,
  formatRate,
  formatSeconds,
  sentence,
} from "../../text/format.ts";
import { Facts } from "../page.tsx";

export function FinalReport({ report }: { report: Report }) {
  const { finalLossNats, unigramEntropyNats } = report;
  const learned = unigramEntropyNats === null ? undefined : unigramEntropyNats - finalLossNats;
  return (
    <>
      {learned !== undefined && (
        <Alert
          color={learned > 0 ? "evo" : "red"}
          variant="light"
          mb="sm"
          {...(learned > 0 ? { className: "verdict" } : { role: "alert" })}
        >
          {learned > 0
            ? `The loss ended ${learned.toFixed(3)} nats below the unigram entropy of the text: the model learned more than how often each token occurs.`
            : `The loss did not end below the unigram entropy of the text, which counting tokens alone reaches.`}
        </Alert>
      )}
      {(report.disturbances ?? []).map((each) => (
        <Alert key={each} color="yellow" variant="light" mb="sm" role="alert">
          {sentence(each)}
        </Alert>
      ))}
      <Facts
        items={[
          {
            name: "Final loss",
            value: `${formatLoss(finalLossNats)} nats`,
            note: "a token, mean of the last tenth",
          },
          ...(report.validation
            ? [
                {
                  name: "Validation loss",
                  value: `${formatLoss(report.validation.lossNats)} nats`,
                  note: `lowest ${formatLoss(report.validation.best.lossNats)} after step ${formatInteger(report.validation.best.step)}`,
                },
              ]
            : []),
          {
            name: "Unigram entropy",
            value: unigramEntropyNats === null ? "not known" : `${formatLoss(unigramEntropyNats)} nats`,
            note: "a token",
          },
          {
            name: "Steps",
            value: formatInteger(report.steps),
            note: `in ${formatCounted(report.attempts, "attempt")}`,
          },
          { name: "Mean step time", value: formatSeconds(report.meanStepTimeSeconds) },
          {
            name: "Throughput",
            value: `${formatRate(report.tokensPerGpuPerSecond)} tokens/s`,
            note: "a rank",
          },
          {
            name: "Time error over trials",
            value: report.timeErrorOverTrials === null ? "–" : formatPercent(report.timeErrorOverTrials),
            note: "mean |predicted − measured| / measured",
          },
          {
            name: "Memory error over trials",
            value: report.memoryErrorOverTrials === null ? "–" : formatPercent(report.memoryErrorOverTrials),
          },
          {
            name: "Rank correlation",
            value:
              report.kendallTauOverTrials === null ? "–" : formatCorrelation(report.kendallTauOverTrials),
            note: "Kendall's τ of predicted and measured",
          },
        ]}
      />
    </>
  );
}
