import { FRAMEWORK_NAMES, type FrameworkName } from "@internevo/contracts";
import { Button, Group, NativeSelect, NumberInput, Text, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { ConfigurationFields, type ConfigurationText } from "../components/import/configuration-fields.tsx";
import { ImportResult } from "../components/import/import-result.tsx";
import { Refusal } from "../components/job-editor.tsx";
import { Page } from "../components/page.tsx";
import { useProfiles } from "../data/queries.ts";
import { useSession } from "../session/session.tsx";
import { besideName, CONFIGURATION_FORMS, FRAMEWORK_WORDS, lineOfOption } from "../text/frameworks.ts";

const SHIPPED = "a800-128";
/** What the example is a configuration of. */
const EXAMPLE = { nodes: 16, gpusPerNode: 8, job: { name: "example", model: "llama-7b", sequenceLengthTokens: 4096, globalBatchTokens: 2 ** 22, cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" } } } as const;

const NOTHING: ConfigurationText = { main: "", beside: "" };

export function ImportPage() {
  const { client } = useSession();
  const profiles = useProfiles();
  const stored = profiles.data?.pages.flatMap(({ items }) => items) ?? [];
  const [framework, setFramework] = useState<FrameworkName>("megatron");
  const [text, setText] = useState(NOTHING);
  const [nodes, setNodes] = useState<number | string>("");
  const [gpusPerNode, setGpusPerNode] = useState<number | string>("");
  const [memory, setMemory] = useState("");
  const [profile, setProfile] = useState(SHIPPED);

  const question = useMutation({
    mutationFn: async () => {
      const { main } = CONFIGURATION_FORMS[framework];
      const beside = besideName(framework, text.main);
      const answer = await client.importConfiguration({
        framework,
        profile,
        files: [{ name: main.name, text: text.main }, ...(beside !== undefined && text.beside.trim() !== "" ? [{ name: beside, text: text.beside }] : [])],
        ...(typeof nodes === "number" ? { nodes } : {}),
        ...(typeof gpusPerNode === "number" ? { gpusPerNode } : {}),
        ...(memory.trim() === "" ? {} : { memoryPerGpu: memory.trim() }),
      });
      return { answer, profile };
    },
  });
  const example = useMutation({
    mutationFn: () => client.exportPlan({ job: EXAMPLE.job, profile: SHIPPED, plan: 1, framework }),
    onSuccess: ({ files: [main, beside] }) => {
      setText({ main: main?.text ?? "", beside: beside?.text ?? "" });
      setNodes(EXAMPLE.nodes);
      setGpusPerNode(EXAMPLE.gpusPerNode);
    },
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
    <Page title="Import" lead="How good a configuration of another framework is: the plan that it says, where that stands among all plans, and what the best plan does otherwise.">
      <form onSubmit={submit} className="job-editor">
        <NativeSelect label="Framework" data={FRAMEWORK_NAMES.map((value) => ({ value, label: FRAMEWORK_WORDS[value] }))} value={framework} onChange={(event) => choose(event.currentTarget.value as FrameworkName)} maw={260} />
        <ConfigurationFields key={framework} framework={framework} text={text} onChange={setText} />
        <div className="fields">
          <NumberInput label="Nodes" description="Empty: as it says" min={1} max={2 ** 20} allowDecimal={false} value={nodes} onChange={setNodes} />
          <NumberInput label="GPUs a node" description="Empty: as it says" min={1} max={4096} allowDecimal={false} value={gpusPerNode} onChange={setGpusPerNode} />
          <TextInput label="Memory a GPU" description="Empty: the profile’s" placeholder="80GB" value={memory} onChange={(event) => setMemory(event.currentTarget.value)} spellCheck={false} autoComplete="off" />
          <NativeSelect
            label="Profile" description="What was measured of the cluster" value={profile} onChange={(event) => setProfile(event.currentTarget.value)}
            data={[{ value: SHIPPED, label: `${SHIPPED} (shipped)` }, ...stored.map(({ id, name, clusterKey }) => ({ value: id, label: `${name} (${clusterKey})` }))]}
          />
        </div>
        {question.error && <Refusal error={question.error} lineOf={(field) => lineOfOption(text.main, field)} />}
        {example.error && <Refusal error={example.error} lineOf={undefined} />}
        <Group gap="xs">
          <Button type="submit" loading={question.isPending} disabled={text.main.trim() === ""}>How good is it?</Button>
          <Button variant="default" loading={example.isPending} onClick={() => example.mutate()}>Insert an example</Button>
        </Group>
      </form>
      <div aria-live="polite">{question.isPending && <Text size="sm" c="dimmed">It is being read, and every plan of its job evaluated…</Text>}</div>
      {question.data && !question.isPending && <ImportResult answer={question.data.answer} profile={question.data.profile} />}
    </Page>
  );
}
