import { ApiProblemError } from "@internevo/client";
import { Alert, Button, Group, List, Text, Textarea } from "@mantine/core";
import { useState, type FormEvent, type ReactNode } from "react";
import example from "../../../../examples/quickstart.yaml?raw";
import { readJobDocument, type JobDocument, type SyntaxFault } from "../text/job-document.ts";
import { ProblemDetails } from "./problem-details.tsx";

interface JobEditorProps {
  readonly action: string;
  readonly busy: boolean;
  readonly error: Error | null;
  readonly onSubmit: (job: unknown) => void;
  /** Further fields, above the button. */
  readonly children?: ReactNode;
  readonly disabled?: boolean;
}

function Refusal({ error, lineOf }: { error: Error; lineOf: JobDocument["lineOf"] | undefined }) {
  if (!(error instanceof ApiProblemError)) return <Alert color="red" role="alert" title="Not sent">{error.message}</Alert>;
  return (
    <Alert color="red" role="alert" title={error.problem.title}>
      {error.problem.detail !== undefined && <Text size="sm" mb="xs">{error.problem.detail}</Text>}
      <ProblemDetails problem={error.problem} lineOf={lineOf} />
    </Alert>
  );
}

/** A field for a job in YAML or JSON, with what is wrong with it by field. */
export function JobEditor({ action, busy, error, onSubmit, children, disabled = false }: JobEditorProps) {
  const [text, setText] = useState("");
  const [faults, setFaults] = useState<readonly SyntaxFault[]>([]);
  const [sent, setSent] = useState<JobDocument>();
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    const read = readJobDocument(text);
    if ("faults" in read) {
      setFaults(read.faults);
      setSent(undefined);
      return;
    }
    setFaults([]);
    setSent(read.document);
    onSubmit(read.document.value);
  };
  return (
    <form onSubmit={submit} className="job-editor">
      <Textarea
        label="Job, YAML or JSON"
        description="Paste a job file, or begin with the example."
        name="job"
        autosize
        minRows={14}
        maxRows={30}
        spellCheck={false}
        autoComplete="off"
        value={text}
        onChange={(event) => setText(event.currentTarget.value)}
        classNames={{ input: "code-input" }}
        required
      />
      {children}
      {faults.length > 0 && (
        <Alert color="red" role="alert" title="This is not YAML or JSON yet">
          <List size="sm">{faults.map(({ line, message }) => <List.Item key={`${line} ${message}`}>{line !== undefined && `Line ${line}: `}{message}</List.Item>)}</List>
        </Alert>
      )}
      {error && faults.length === 0 && <Refusal error={error} lineOf={sent?.lineOf} />}
      <Group gap="xs">
        <Button type="submit" loading={busy} disabled={disabled || text.trim() === ""}>{action}</Button>
        <Button variant="default" onClick={() => setText(example)} disabled={text === example}>Insert the example</Button>
      </Group>
    </form>
  );
}
