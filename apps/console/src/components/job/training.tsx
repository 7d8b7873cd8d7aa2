import type { JobDetail } from "@internevo/contracts";
import type { StepMetric, ValidationLoss } from "@internevo/domain";
import { Text } from "@mantine/core";
import { useMemo } from "react";
import { formatInteger, formatLoss, formatRate, formatSeconds } from "../../text/format.ts";
import { lastMade } from "../../data/job-feed.ts";
import { lossCurves } from "../../data/loss-curves.ts";
import { LiveChart } from "../chart/live-chart.tsx";
import { Facts } from "../page.tsx";

const nats = (value: number): string => `${formatLoss(value)} nats`;
const rate = (value: number): string => `${formatRate(value)} tokens/s`;

/** What the last step, and the last evaluation, measured. */
const factsOf = (job: JobDetail, last: StepMetric, validation: ValidationLoss | undefined) => [
  { name: "Step", value: `${formatInteger(last.step)} of ${formatInteger(job.steps)}` },
  { name: "Loss", value: nats(last.loss) },
  ...(validation
    ? [
        {
          name: "Validation loss",
          value: nats(validation.loss),
          note: `of held-out data, after step ${formatInteger(validation.step)}`,
        },
      ]
    : []),
  { name: "Throughput", value: rate(last.tokensPerSecond), note: "of all ranks, last step" },
  { name: "Step time", value: formatSeconds(last.stepTimeSeconds) },
  { name: "Exposed communication", value: formatSeconds(last.exposedCommunicationSeconds) },
  { name: "Gradient norm", value: last.gradientNorm.toPrecision(3) },
  { name: "Learning rate", value: last.learningRate.toExponential(2) },
];

/** Loss and throughput of the training, step by step. */
export function Training({
  job,
  steps,
  validations,
}: {
  job: JobDetail;
  steps: readonly StepMetric[];
  validations: readonly ValidationLoss[];
}) {
  const numbers = useMemo(() => steps.map(({ step }) => step), [steps]);
  const losses = useMemo(() => lossCurves(steps, validations), [steps, validations]);
  const rates = useMemo(() => steps.map(({ tokensPerSecond }) => tokensPerSecond), [steps]);
  const restarts = useMemo(
    () => job.attempts.filter(({ number }) => number > 1).map(({ resumedFromStep }) => resumedFromStep),
    [job.attempts],
  );
  const entropy = job.report?.unigramEntropyNats ?? undefined;
  const last = useMemo(() => lastMade(steps), [steps]);
  const validation = validations.at(-1);
  if (!last)
    return (
      <Text size="sm" c="dimmed">
        No step has been measured yet.
      </Text>
    );
  return (
    <>
      <Facts items={factsOf(job, last, validation)} />
      <div className="chart-pair">
        <figure aria-label="Loss">
          <figcaption>
            Loss, nats a token{validation && ", of training and held-out data"}
            {entropy !== undefined && ", beside the unigram entropy of the text"}
          </figcaption>
          <LiveChart
            title="Loss"
            steps={losses.steps}
            values={losses.training}
            second={validation && { label: "Validation loss", values: losses.validation }}
            format={nats}
            marks={restarts}
            reference={entropy === undefined ? undefined : { label: "Unigram entropy", value: entropy }}
          />
        </figure>
        <figure aria-label="Throughput">
          <figcaption>Throughput, tokens/s of all ranks</figcaption>
          <LiveChart
            title="Throughput"
            steps={numbers}
            values={rates}
            format={rate}
            marks={restarts}
            fromZero
          />
        </figure>
      </div>
      {restarts.length > 0 && (
        <Text size="xs" c="dimmed">
          Dotted lines: steps that a restart resumed from.
        </Text>
      )}
    </>
  );
}
