import {
  FRAMEWORK_NAMES,
  type ExportedConfigurationAnswer,
  type FrameworkName,
  type PlanChoice,
} from "@internevo/contracts";
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

/** What the files would need and take, which the plan that was asked for may not. */
function Written({ answer: { predicted } }: { answer: ExportedConfigurationAnswer }) {
  const { peakMemoryBytes, memoryLimitBytes, fits, stepTimeSeconds } = predicted;
  const figures = `${formatBytes(peakMemoryBytes)} a rank${stepTimeSeconds === null ? "" : ` and ${formatSeconds(stepTimeSeconds)} a step`}`;
  if (fits) return <Text size="sm">What is written needs {figures}, predicted for our executor.</Text>;
  return (
    <Alert color="red" title="What is written does not fit">
      It needs {figures}, predicted for our executor; a rank has {formatBytes(memoryLimitBytes)}.
    </Alert>
  );
}

/** A plan as files of another framework. */
export function Configurations({
  subject,
  plan,
  jobName,
}: {
  subject: Subject;
  plan: PlanChoice;
  jobName: string;
}) {
  const { client } = useSession();
  const [framework, setFramework] = useState<FrameworkName>("megatron");
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
