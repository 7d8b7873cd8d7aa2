import type { ImportAnswer } from "@internevo/contracts";
import { launchWords, modelExtras, planLabel, verdictDoubt } from "@internevo/domain";
import { Alert, Button, Code, Text } from "@mantine/core";
import { stringify } from "yaml";
import type { Subject } from "../../data/advice.ts";
import { downloadText, fileName } from "../../data/download.ts";
import { FRAMEWORK_WORDS } from "../../text/frameworks.ts";
import { formatInteger, formatTokens, sentence } from "../../text/format.ts";
import { Facts, Section } from "../page.tsx";
import { Comparison } from "../plan/compare-plans.tsx";
import { PlanText } from "../plan/plan-text.tsx";
import { StageMemory, WhyNot } from "../plan/why-not.tsx";

const shown = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

/** Options stand out, and do not break at their dashes. */
const WithOptions = ({ children }: { children: string }) =>
  children
    .split(/(--[\w-]+)/)
    .map((part, index) => (index % 2 === 1 ? <Code key={index}>{part}</Code> : part));

/** The job as the API sent it; what is shown of it. */
interface ImportedJob {
  readonly sequenceLengthTokens?: number;
  readonly globalBatchTokens?: number;
  readonly precision?: string;
  readonly cluster?: { readonly nodes?: number; readonly gpusPerNode?: number };
}

type Imported = ImportAnswer["imported"];

/** The model and the batch that were read. */
function ReadFacts({ model, job }: { model: Imported["model"]; job: ImportedJob }) {
  const { nodes = 1, gpusPerNode = 1 } = job.cluster ?? {};
  return (
    <Facts
      items={[
        {
          name: "Ranks",
          value: formatInteger(nodes * gpusPerNode),
          note: `${formatInteger(nodes)} × ${formatInteger(gpusPerNode)}`,
        },
        { name: "Layers", value: formatInteger(model.layers) },
        { name: "Hidden size", value: formatInteger(model.hiddenSize) },
        {
          name: "Heads",
          value: formatInteger(model.heads),
          ...(model.kvHeads === model.heads
            ? {}
            : { note: `${formatInteger(model.kvHeads)} of keys and values` }),
        },
        ...(modelExtras(model).length === 0
          ? []
          : [{ name: "Beside its sizes", value: modelExtras(model).join(", "), wide: true }]),
        {
          name: "Sequence",
          value: job.sequenceLengthTokens === undefined ? "–" : formatTokens(job.sequenceLengthTokens),
          note: "tokens",
        },
        {
          name: "Batch",
          value: job.globalBatchTokens === undefined ? "–" : formatTokens(job.globalBatchTokens),
          note: "tokens a step",
        },
        { name: "Precision", value: job.precision ?? "–" },
      ]}
    />
  );
}

function Warnings({ framework, warnings }: Pick<Imported, "framework" | "warnings">) {
  if (warnings.length === 0) return null;
  return (
    <Alert color="yellow" title={`${FRAMEWORK_WORDS[framework]} does not take it as it is`}>
      <ul className="plain-list">
        {warnings.map(({ field, value, message, remedy }) => (
          <li key={field}>
            <Code>{field}</Code> <Code>{shown(value)}</Code> <WithOptions>{message}</WithOptions>.{" "}
            {sentence(remedy.charAt(0).toUpperCase() + remedy.slice(1))}
          </li>
        ))}
      </ul>
    </Alert>
  );
}

function TakenAs({ takenAs }: Pick<Imported, "takenAs">) {
  if (takenAs.length === 0) return null;
  return (
    <div>
      <Text size="sm" fw={600}>
        Taken as something near
      </Text>
      <ul className="plain-list">
        {takenAs.map(({ option, value, as }) => (
          <li key={option}>
            <Code>{option}</Code>
            {value !== undefined && value !== null && (
              <>
                {" "}
                <Code>{shown(value)}</Code>
              </>
            )}{" "}
            is taken as {sentence(as)}
          </li>
        ))}
      </ul>
    </div>
  );
}

function Ignored({ ignored }: Pick<Imported, "ignored">) {
  if (ignored.length === 0) return null;
  return (
    <details className="as-table">
      <summary>
        {ignored.length === 1 ? "1 option has" : `${ignored.length} options have`} no effect on time or memory
      </summary>
      <p className="ignored-options">
        {ignored.map((option) => (
          <Code key={option}>{option}</Code>
        ))}
      </p>
    </details>
  );
}

/** What was read, in our words. */
function WhatItSays({ answer: { imported, job } }: { answer: ImportAnswer }) {
  const { model, plan, version, launch, launchOrigin } = imported;
  return (
    <div className="answer">
      <div className="chosen-plan">
        <PlanText plan={plan} />
      </div>
      <Text size="sm">{sentence(`Read ${launchWords(launch, launchOrigin)}`)}</Text>
      <ReadFacts model={model} job={job as ImportedJob} />
      <Warnings framework={imported.framework} warnings={imported.warnings} />
      <TakenAs takenAs={imported.takenAs} />
      <Ignored ignored={imported.ignored} />
      <Text size="sm" c="dimmed">
        Its options were read as those of {version}.
      </Text>
    </div>
  );
}

/**
 * How good a configuration is: what it says, where its plan stands, and how the best plan differs from it.
 */
export function ImportResult({ answer, profile }: { answer: ImportAnswer; profile: string }) {
  const { imported, job, planning } = answer;
  const subject: Subject = { job, profile };
  const best = planning.candidates[0];
  const { located } = planning;
  // A plan that does not divide the job has no time.
  const hasTime = located?.predicted !== null && located !== undefined;
  const doubt = hasTime ? verdictDoubt(imported.takenAs, located.feasible) : null;
  return (
    <>
      <Section
        title="What it says"
        aside={
          <Button
            size="compact-sm"
            variant="default"
            onClick={() => downloadText(`${fileName(planning.job)}.yaml`, stringify(job), "application/yaml")}
          >
            Job file
          </Button>
        }
      >
        <WhatItSays answer={answer} />
      </Section>
      <Section
        title="How good it is"
        about={`By prediction for our executor, with profile ${planning.profile}. Nothing was run or stored.`}
      >
        {doubt !== null && (
          <Alert color="yellow">{sentence(doubt.charAt(0).toUpperCase() + doubt.slice(1))}</Alert>
        )}
        <WhyNot subject={subject} plan={imported.plan} limitBytes={planning.memoryLimitBytes} />
      </Section>
      {hasTime && best !== undefined && planLabel(best.plan) !== planLabel(imported.plan) && (
        <Section title="Beside the best plan" folded about="A is the configuration, B the best plan.">
          <Comparison subject={subject} a={imported.plan} b={best.plan} />
        </Section>
      )}
      {hasTime && (
        <Section title="What its ranks hold" folded about="Predicted memory of a rank of each stage.">
          <StageMemory subject={subject} plan={imported.plan} />
        </Section>
      )}
    </>
  );
}
