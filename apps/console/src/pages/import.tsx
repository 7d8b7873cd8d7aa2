import { FRAMEWORK_NAMES, type FrameworkName } from "@internevo/contracts";
import { Button, Group, NativeSelect, NumberInput, Text, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useRef, useState, type FormEvent } from "react";
import { ConfigurationFields, type ConfigurationText } from "../components/import/configuration-fields.tsx";
import { ImportResult } from "../components/import/import-result.tsx";
import { Refusal } from "../components/job-editor.tsx";
import { Page } from "../components/page.tsx";
import { ProfileSelect, SHIPPED_PROFILE } from "../components/profile-select.tsx";
import { useSession } from "../session/session.tsx";
import { besideName, CONFIGURATION_FORMS, FRAMEWORK_WORDS, lineOfOption } from "../text/frameworks.ts";

/** What the example is a configuration of: a usual plan, and not the best one. */
const EXAMPLE = {
  plan: "b1 n64 a0 pp1 dp16 tp8 sp8 ps1 gs1 oss16",
  job: {
    name: "example",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 2 ** 22,
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
  },
} as const;

const NOTHING: ConfigurationText = { main: "", beside: "" };

/** What the file may leave out: the ranks, and the memory of a GPU. */
interface Launch {
  readonly nodes: number | string;
  readonly gpusPerNode: number | string;
  readonly memory: string;
  readonly profile: string;
}
const NOWHERE: Launch = { nodes: "", gpusPerNode: "", memory: "", profile: SHIPPED_PROFILE };

function LaunchFields({ launch, onChange }: { launch: Launch; onChange: (launch: Launch) => void }) {
  return (
    <div className="fields">
      <NumberInput
        label="Nodes"
        description="Empty: as it says"
        min={1}
        max={2 ** 20}
        allowDecimal={false}
        value={launch.nodes}
        onChange={(nodes) => onChange({ ...launch, nodes })}
      />
      <NumberInput
        label="GPUs a node"
        description="Empty: as it says"
        min={1}
        max={4096}
        allowDecimal={false}
        value={launch.gpusPerNode}
        onChange={(gpusPerNode) => onChange({ ...launch, gpusPerNode })}
      />
      <TextInput
        label="Memory a GPU"
        description="Empty: the profile’s"
        placeholder="80GB"
        value={launch.memory}
        onChange={(event) => onChange({ ...launch, memory: event.currentTarget.value })}
        spellCheck={false}
        autoComplete="off"
      />
      <ProfileSelect
        description="What was measured of the cluster"
        value={launch.profile}
        onChange={(profile) => onChange({ ...launch, profile })}
      />
    </div>
  );
}

/** Asks how good the configuration is. */
function useQuestion(framework: FrameworkName, text: ConfigurationText, launch: Launch) {
  const { client } = useSession();
  const { nodes, gpusPerNode, memory, profile } = launch;
  return useMutation({
    mutationFn: async () => {
      const { main } = CONFIGURATION_FORMS[framework];
      const beside = besideName(framework, text.main);
      const answer = await client.importConfiguration({
        framework,
        profile,
        files: [
          { name: main.name, text: text.main },
          ...(beside !== undefined && text.beside.trim() !== "" ? [{ name: beside, text: text.beside }] : []),
        ],
        ...(typeof nodes === "number" ? { nodes } : {}),
        ...(typeof gpusPerNode === "number" ? { gpusPerNode } : {}),
        ...(memory.trim() === "" ? {} : { memoryPerGpu: memory.trim() }),
      });
      return { answer, profile };
    },
  });
}

/** Writes an example into the form, unless somebody has written something else. */
function useExample(
  framework: FrameworkName,
  text: ConfigurationText,
  onExample: (example: ConfigurationText) => void,
) {
  const { client } = useSession();
  const latest = useRef({ framework, text });
  latest.current = { framework, text };
  /** The example that was inserted last; nothing else is replaced by one. */
  const inserted = useRef(NOTHING);
  const mayInsert = (current: ConfigurationText): boolean =>
    (["main", "beside"] as const).every(
      (part) => current[part].trim() === "" || current[part] === inserted.current[part],
    );
  const example = useMutation({
    mutationFn: (of: FrameworkName) =>
      client.exportPlan({ job: EXAMPLE.job, profile: SHIPPED_PROFILE, plan: EXAMPLE.plan, framework: of }),
    onSuccess: ({ files: [main, beside] }, of) => {
      const example = { main: main?.text ?? "", beside: beside?.text ?? "" };
      // Somebody may have written, or chosen another framework, meanwhile.
      if (of !== latest.current.framework || !mayInsert(latest.current.text)) return;
      inserted.current = example;
      onExample(example);
    },
  });
  return { example, mayInsert: mayInsert(text) };
}

export function ImportPage() {
  const [framework, setFramework] = useState<FrameworkName>("megatron");
  const [text, setText] = useState(NOTHING);
  const [launch, setLaunch] = useState(NOWHERE);
  const question = useQuestion(framework, text, launch);
  const { example, mayInsert } = useExample(framework, text, (written) => {
    setText(written);
    // The example says its own ranks, and so may what is written over it.
    setLaunch((before) => ({ ...before, nodes: "", gpusPerNode: "" }));
  });
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    question.mutate();
  };
  const choose = (value: FrameworkName): void => {
    setFramework(value);
    setText(NOTHING);
    question.reset();
  };
  return (
    <Page
      title="Import"
      lead="How good a configuration of another framework is: the plan that it says, where that stands among all plans, and how the best plan differs from it."
    >
      <form onSubmit={submit} className="job-editor">
        <NativeSelect
          label="Framework"
          data={FRAMEWORK_NAMES.map((value) => ({ value, label: FRAMEWORK_WORDS[value] }))}
          value={framework}
          onChange={(event) => choose(event.currentTarget.value as FrameworkName)}
          maw={260}
        />
        <ConfigurationFields key={framework} framework={framework} text={text} onChange={setText} />
        <LaunchFields launch={launch} onChange={setLaunch} />
        {question.error && (
          <Refusal error={question.error} lineOf={(field) => lineOfOption(text.main, field)} />
        )}
        {example.error && <Refusal error={example.error} lineOf={undefined} />}
        <Group gap="xs">
          <Button type="submit" loading={question.isPending} disabled={text.main.trim() === ""}>
            How good is it?
          </Button>
          <Button
            variant="default"
            loading={example.isPending}
            disabled={!mayInsert}
            onClick={() => example.mutate(framework)}
          >
            Insert an example
          </Button>
        </Group>
      </form>
      <div aria-live="polite">
        {question.isPending && (
          <Text size="sm" c="dimmed">
            It is being read, and every plan of its job evaluated…
          </Text>
        )}
      </div>
      {question.data && !question.isPending && (
        <ImportResult answer={question.data.answer} profile={question.data.profile} />
      )}
    </Page>
  );
}
