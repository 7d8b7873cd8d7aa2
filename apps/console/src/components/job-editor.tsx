import { ApiProblemError } from "@internevo/client";
import { Alert, Button, FileButton, Group, Text, Textarea } from "@mantine/core";
import { useState, type FormEvent, type ReactNode } from "react";
import type { SyntaxFault } from "@internevo/domain";
import example from "../../../../examples/quickstart.yaml?raw";
import { keepDraft, readDraft } from "../data/drafts.ts";
import { readJobDocument, type JobDocument } from "../text/job-document.ts";
import { sentence } from "../text/format.ts";
import { ProblemDetails, summaryOf } from "./problem-details.tsx";
import { Prose } from "./prose.tsx";

/** A job file that is larger is none: the API takes no more. */
const MOST_BYTES = 1_000_000;

/** Something that can be done with the job as it is written. */
export interface JobAction {
  readonly label: string;
  readonly busy: boolean;
  readonly onRun: (job: unknown) => void;
  readonly disabled?: boolean;
}

interface JobEditorProps {
  readonly file: JobText;
  /** The first is what the form is for. */
  readonly actions: readonly [JobAction, ...JobAction[]];
  readonly error: Error | null;
  /** Further fields, above the buttons. */
  readonly children?: ReactNode;
}

export function Refusal({ error, lineOf }: { error: Error; lineOf: JobDocument["lineOf"] | undefined }) {
  if (!(error instanceof ApiProblemError))
    return (
      <Alert color="red" role="alert" title="Not sent">
        {error.message}
      </Alert>
    );
  const summary = summaryOf(error.problem);
  return (
    <Alert color="red" role="alert" title={error.problem.title}>
      {summary !== undefined && (
        <Text size="sm" mb="xs">
          <Prose>{sentence(summary)}</Prose>
        </Text>
      )}
      <ProblemDetails problem={error.problem} lineOf={lineOf} />
    </Alert>
  );
}

export interface JobText {
  readonly text: string;
  readonly setText: (text: string) => void;
  /** Puts a text in the place of what is there, and asks first where somebody wrote that. */
  readonly offer: (text: string) => void;
  /** The text that was offered and waits for an answer. */
  readonly offered: string | undefined;
  readonly accept: () => void;
  readonly decline: () => void;
  /** Forgets the draft: the job is on its way. */
  readonly forget: () => void;
  /** Reads the text; undefined, with its faults shown, when it is no document. */
  readonly read: () => JobDocument | undefined;
  /** Of what was read last. */
  readonly lineOf: JobDocument["lineOf"] | undefined;
  /** What is wrong with the text; undefined: nothing. */
  readonly faults: ReactNode;
}

function Fault({ fault: { line, message, excerpt, remedy } }: { fault: SyntaxFault }) {
  return (
    <>
      <Text size="sm">
        {line !== undefined && `Line ${line} `}
        <Prose>{excerpt === undefined ? sentence(message) : `${message}:`}</Prose>
      </Text>
      {excerpt !== undefined && <pre className="document">{excerpt}</pre>}
      <Text size="sm" fw={600}>
        <Prose>{sentence(remedy.charAt(0).toUpperCase() + remedy.slice(1))}</Prose>
      </Text>
    </>
  );
}

/** The text of a job that is being written. @param page that it is written on: it survives leaving that. */
export function useJobText(page: string): JobText {
  const [text, setShown] = useState(() => readDraft(page));
  const [offered, setOffered] = useState<string>();
  const [faults, setFaults] = useState<readonly SyntaxFault[]>([]);
  const [sent, setSent] = useState<JobDocument>();
  const setText = (next: string): void => {
    setShown(next);
    setOffered(undefined);
    keepDraft(page, next);
  };
  const read = (): JobDocument | undefined => {
    const found = readJobDocument(text);
    const document = "faults" in found ? undefined : found.document;
    setFaults("faults" in found ? found.faults : []);
    setSent(document);
    return document;
  };
  return {
    text,
    setText,
    read,
    offered,
    lineOf: sent?.lineOf,
    offer: (next) =>
      [example, next].includes(text) || text.trim() === "" ? setText(next) : setOffered(next),
    accept: () => offered !== undefined && setText(offered),
    decline: () => setOffered(undefined),
    forget: () => keepDraft(page, ""),
    faults:
      faults.length === 0 ? undefined : (
        <Alert color="red" role="alert" title="This is not YAML or JSON yet">
          {faults.map((fault) => (
            <Fault key={fault.message} fault={fault} />
          ))}
        </Alert>
      ),
  };
}

export const InsertExample = ({ file }: { file: JobText }) => (
  <Button variant="default" onClick={() => file.offer(example)} disabled={file.text === example}>
    Insert the example
  </Button>
);

/** A job file of this computer, in the place of what is written. */
function ChooseFile({ file }: { file: JobText }) {
  const [fault, setFault] = useState<string>();
  const pick = async (picked: File | null): Promise<void> => {
    if (picked === null) return;
    setFault(picked.size > MOST_BYTES ? `${picked.name} is larger than 1 MB: it is no job file` : undefined);
    if (picked.size <= MOST_BYTES) file.offer(await picked.text());
  };
  return (
    <>
      <FileButton
        accept=".yaml,.yml,.json,application/json,text/plain"
        onChange={(picked) => void pick(picked)}
      >
        {(props) => (
          <Button {...props} variant="default">
            Choose a file…
          </Button>
        )}
      </FileButton>
      {fault !== undefined && (
        <Text size="sm" c="red" role="alert">
          {fault}
        </Text>
      )}
    </>
  );
}

/** What replaces a draft only when its writer says so. */
function Replacing({ file }: { file: JobText }) {
  if (file.offered === undefined) return null;
  return (
    <Alert color="yellow" role="alert" title="Replace what you wrote?">
      <Group gap="xs">
        <Button variant="default" onClick={file.decline}>
          Keep it
        </Button>
        <Button variant="default" className="button-danger" onClick={file.accept}>
          Replace it
        </Button>
      </Group>
    </Alert>
  );
}

export function JobField({ file, minRows = 14 }: { file: JobText; minRows?: number }) {
  return (
    <>
      <Textarea
        label="Job, YAML or JSON"
        description="Paste a job file, choose one, or begin with the example. Paths of data begin with /, and are those of the machine where the services run."
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
      <Replacing file={file} />
      <Group gap="xs">
        <ChooseFile file={file} />
        <InsertExample file={file} />
      </Group>
    </>
  );
}

/** A field for a job in YAML or JSON, with what can be done with it, and what is wrong with it by field. */
export function JobEditor({ file, actions, error, children }: JobEditorProps) {
  const [main, ...others] = actions;
  const runs =
    ({ onRun }: JobAction) =>
    (event: FormEvent): void => {
      event.preventDefault();
      const document = file.read();
      if (document) onRun(document.value);
    };
  const isBarred = ({ disabled = false }: JobAction): boolean => disabled || file.text.trim() === "";
  return (
    <form onSubmit={runs(main)} className="job-editor">
      <JobField file={file} />
      {children}
      {file.faults}
      {error && file.faults === undefined && <Refusal error={error} lineOf={file.lineOf} />}
      <Group gap="xs">
        <Button type="submit" loading={main.busy} disabled={isBarred(main)}>
          {main.label}
        </Button>
        {others.map((action) => (
          <Button
            key={action.label}
            variant="default"
            loading={action.busy}
            disabled={isBarred(action)}
            onClick={runs(action)}
          >
            {action.label}
          </Button>
        ))}
      </Group>
    </form>
  );
}
