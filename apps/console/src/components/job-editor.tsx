import { ApiProblemError } from "@internevo/client";
import { Alert, Button, Group, List, Text, Textarea } from "@mantine/core";
import { useState, type FormEvent, type ReactNode } from "react";
import example from "../../../../examples/quickstart.yaml?raw";
import { readJobDocument, type JobDocument, type SyntaxFault } from "../text/job-document.ts";
import { sentence } from "../text/format.ts";
import { ProblemDetails, summaryOf } from "./problem-details.tsx";
import { Prose } from "./prose.tsx";

interface JobEditorProps {
  readonly action: string;
  readonly busy: boolean;
  readonly error: Error | null;
  readonly onSubmit: (job: unknown) => void;
  /** Further fields, above the button. */
  readonly children?: ReactNode;
  readonly disabled?: boolean;
}

export function Refusal({ error, lineOf }: { error: Error; lineOf: JobDocument["lineOf"] | undefined }) {
  if (!(error instanceof ApiProblemError)) return <Alert color="red" role="alert" title="Not sent">{error.message}</Alert>;
  const summary = summaryOf(error.problem);
  return (
    <Alert color="red" role="alert" title={error.problem.title}>
      {summary !== undefined && <Text size="sm" mb="xs"><Prose>{sentence(summary)}</Prose></Text>}
      <ProblemDetails problem={error.problem} lineOf={lineOf} />
    </Alert>
  );
}

export interface JobText {
  readonly text: string;
  readonly setText: (text: string) => void;
  /** Reads the text; undefined, with its faults shown, when it is no document. */
  readonly read: () => JobDocument | undefined;
  /** Of what was read last. */
  readonly lineOf: JobDocument["lineOf"] | undefined;
  /** What is wrong with the text; undefined: nothing. */
  readonly faults: ReactNode;
}

/** The text of a job that is being written. */
export function useJobText(): JobText {
  const [text, setText] = useState("");
  const [faults, setFaults] = useState<readonly SyntaxFault[]>([]);
  const [sent, setSent] = useState<JobDocument>();
  const read = (): JobDocument | undefined => {
    const found = readJobDocument(text);
    const document = "faults" in found ? undefined : found.document;
    setFaults("faults" in found ? found.faults : []);
    setSent(document);
    return document;
  };
  return {
    text, setText, read, lineOf: sent?.lineOf,
    faults: faults.length === 0 ? undefined : (
      <Alert color="red" role="alert" title="This is not YAML or JSON yet">
        <List size="sm">{faults.map(({ line, message }) => <List.Item key={`${line} ${message}`}>{line !== undefined && `Line ${line}: `}<Prose>{message}</Prose></List.Item>)}</List>
      </Alert>
    ),
  };
}

export const InsertExample = ({ file }: { file: JobText }) => <Button variant="default" onClick={() => file.setText(example)} disabled={file.text === example}>Insert the example</Button>;

export function JobField({ file, minRows = 14 }: { file: JobText; minRows?: number }) {
  return (
    <Textarea
      label="Job, YAML or JSON"
      description="Paste a job file, or begin with the example."
      name="job"
      autosize
      minRows={minRows}
      maxRows={30}
      spellCheck={false}
      autoComplete="off"
      value={file.text}
      onChange={(event) => file.setText(event.currentTarget.value)}
      classNames={{ input: "code-input" }}
      required
    />
  );
}

/** A field for a job in YAML or JSON, with what is wrong with it by field. */
export function JobEditor({ action, busy, error, onSubmit, children, disabled = false }: JobEditorProps) {
  const file = useJobText();
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    const document = file.read();
    if (document) onSubmit(document.value);
  };
  return (
    <form onSubmit={submit} className="job-editor">
      <JobField file={file} />
      {children}
      {file.faults}
      {error && file.faults === undefined && <Refusal error={error} lineOf={file.lineOf} />}
      <Group gap="xs">
        <Button type="submit" loading={busy} disabled={disabled || file.text.trim() === ""}>{action}</Button>
        <InsertExample file={file} />
      </Group>
    </form>
  );
}
