import {
  FRAMEWORK_NAMES,
  type ExportedConfigurationAnswer,
  type FrameworkName,
  type PlanChoice,
} from "@internevo/contracts";
import { planLabel, type Plan } from "@internevo/domain";
import { Alert, Button, Code, Group, NativeSelect, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { useExport, type Subject } from "../../data/advice.ts";
import { download, downloadText, fileName } from "../../data/download.ts";
import { useSession } from "../../session/session.tsx";
import { formatBytes, formatSeconds, sentence } from "../../text/format.ts";
import { FRAMEWORK_WORDS } from "../../text/frameworks.ts";
import { fieldName, fieldValue } from "../../text/words.ts";
import { Failed, Loading } from "../states.tsx";

function shown(field: string, value: unknown): string {
  if (value === undefined) return "nothing";
  return typeof value === "object" ? JSON.stringify(value) : fieldValue(field, value);
}

/** What is lost, before anything is taken away. */
function Inexpressible({ name, answer }: { name: string; answer: ExportedConfigurationAnswer }) {
  if (answer.inexpressible.length === 0) return <Text size="sm">{name} can express all of this plan.</Text>;
  return (
    <Alert color="yellow" title={`What ${name} cannot express`}>
      <ul className="plain-list">
        {answer.inexpressible.map(({ field, value, nearest, reason }) => {
          const key = field.replace(/^plan\./, "");
          const same = JSON.stringify(value) === JSON.stringify(nearest);
          return (
            <li key={field}>
              <strong>{field.startsWith("plan.") ? fieldName(key) : field}</strong>{" "}
              <Code>{shown(key, value)}</Code>
              {same ? (
                ", not exactly"
              ) : (
                <>
                  {" "}
                  is written as <Code>{shown(key, nearest)}</Code>
                </>
              )}
              : {sentence(reason)}
            </li>
          );
        })}
      </ul>
    </Alert>
  );
}

const figuresOf = ({
  peakMemoryBytes,
  stepTimeSeconds,
}: Pick<ExportedConfigurationAnswer["predicted"], "peakMemoryBytes" | "stepTimeSeconds">): string =>
  `${formatBytes(peakMemoryBytes)} a rank${stepTimeSeconds === null ? "" : ` and ${formatSeconds(stepTimeSeconds)} a step`}`;

/** What the files would need and take, which the plan that was asked for may not. */
function Written({ answer: { predicted } }: { answer: ExportedConfigurationAnswer }) {
  const { memoryLimitBytes, fits } = predicted;
  const figures = figuresOf(predicted);
  if (fits) return <Text size="sm">What is written needs {figures}, predicted for our executor.</Text>;
  return (
    <Alert color="red" title="What is written does not fit">
      It needs {figures}, predicted for our executor; a rank has {formatBytes(memoryLimitBytes)}.
    </Alert>
  );
}

/** The best plan that the framework can say, where that is not what is written. */
function Offered({
  name,
  answer: { best, plan },
  onTake,
}: {
  name: string;
  answer: ExportedConfigurationAnswer;
  onTake: (plan: Plan) => void;
}) {
  if (best === undefined) return null;
  if (best === null)
    return <Text size="sm">No plan of this job that fits can be said in {name}’s words.</Text>;
  if (planLabel(best.plan) === planLabel(plan))
    return <Text size="sm">No plan that {name} can say is faster.</Text>;
  return (
    <Alert color="blue" title={`The best plan that ${name} can say`}>
      <Text size="sm">
        <Code>{planLabel(best.plan)}</Code> needs {figuresOf(best)}.
      </Text>
      <Button mt="xs" variant="default" onClick={() => onTake(best.plan)}>
        Write this plan
      </Button>
    </Alert>
  );
}

/** A plan as files of another framework. */
export function Configurations({
  subject,
  plan: shownPlan,
  jobName,
}: {
  subject: Subject;
  plan: PlanChoice;
  jobName: string;
}) {
  const { client } = useSession();
  const [framework, setFramework] = useState<FrameworkName>("megatron");
  const [taken, setTaken] = useState<{ readonly framework: FrameworkName; readonly plan: Plan } | null>(null);
  const plan = taken?.framework === framework ? taken.plan : shownPlan;
  const query = useExport(subject, plan, framework);
  const archive = useMutation({
    mutationFn: () => client.exportArchive({ ...subject, plan, framework }),
    onSuccess: (content) => download(`${fileName(jobName)}-${framework}.zip`, content),
  });
  const name = FRAMEWORK_WORDS[framework];
  return (
    <div className="answer">
      <NativeSelect
        label="Framework"
        data={FRAMEWORK_NAMES.map((value) => ({ value, label: FRAMEWORK_WORDS[value] }))}
        value={framework}
        onChange={(event) => setFramework(event.currentTarget.value as FrameworkName)}
        maw={260}
      />
      {query.isPending && <Loading label="configuration" rows={3} />}
      {query.isError && !query.data && (
        <Failed what={`configuration of ${name}`} error={query.error} onRetry={() => void query.refetch()} />
      )}
      {query.data && (
        <>
          <Inexpressible name={name} answer={query.data} />
          <Written answer={query.data} />
          <Offered name={name} answer={query.data} onTake={(own) => setTaken({ framework, plan: own })} />
          {plan !== shownPlan && (
            <Group gap="xs">
              <Text size="sm">
                Written is <Code>{planLabel(query.data.plan)}</Code>, the best that {name} can say.
              </Text>
              <Button size="compact-sm" variant="subtle" onClick={() => setTaken(null)}>
                Back to the plan shown
              </Button>
            </Group>
          )}
          <Group gap="xs">
            {query.data.files.map((file) => (
              <Button
                key={file.name}
                variant="default"
                onClick={() => downloadText(file.name.split("/").at(-1) ?? file.name, file.text)}
              >
                Download {file.name}
              </Button>
            ))}
            {query.data.files.length > 1 && (
              <Button variant="light" loading={archive.isPending} onClick={() => archive.mutate()}>
                Download all, zip
              </Button>
            )}
          </Group>
          {archive.isError && <Failed what="archive" error={archive.error} />}
          {query.data.files.map(({ name: file, text }) => (
            <details key={file} className="as-table">
              <summary>Show {file}</summary>
              <pre className="document" tabIndex={0} aria-label={file}>
                {text}
              </pre>
            </details>
          ))}
          <Text size="sm" c="dimmed">
            Option names are those of {query.data.version}.
          </Text>
        </>
      )}
    </div>
  );
}
