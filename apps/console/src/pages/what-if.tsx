import type { InternEvoClient } from "@internevo/client";
import type { JobDetail } from "@internevo/contracts";
import { parseQuantity, readHeadroom, type QuantityKind } from "@internevo/domain";
import { Button, Group, NativeSelect, SegmentedControl, Text } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useState, type FormEvent } from "react";
import { HeadroomField, headroomFault, headroomOf } from "../components/headroom-field.tsx";
import { JobField, Refusal, useJobText } from "../components/job-editor.tsx";
import { EstimatesNote } from "../components/plan/estimates-note.tsx";
import { Page } from "../components/page.tsx";
import { ProfileSelect } from "../components/profile-select.tsx";
import { Loading } from "../components/states.tsx";
import {
  ASKED_FIRST,
  faultOf,
  QuestionFields,
  trainingTokens,
  type Asked,
  type Filled,
} from "../components/what-if/question-fields.tsx";
import { QUESTIONS, type Outcome, type QuestionKind } from "../components/what-if/questions.ts";
import { WhatIfResult, type Room } from "../components/what-if/results.tsx";
import type { Subject } from "../data/advice.ts";
import { jobKey, useJobs } from "../data/queries.ts";
import { useSession } from "../session/session.tsx";
import { axisValues, firstValues, whyFirstValues, type JobSizes } from "../text/axis-values.ts";
import { readJobDocument } from "../text/job-document.ts";

const route = getRouteApi("/what-if");

const DAY_SECONDS = 86_400;

async function ask(
  client: InternEvoClient,
  subject: Subject,
  kind: QuestionKind,
  asked: Filled,
): Promise<Outcome> {
  const values = (axis: Asked["axis"], text: string): number[] => {
    const read = axisValues(axis, text);
    return "values" in read ? read.values : [];
  };
  switch (kind) {
    case "sweep":
      return {
        kind,
        answer: await client.sweep({
          ...subject,
          axis: asked.axis,
          values: values(asked.axis, asked.values),
        }),
      };
    case "largest":
      return {
        kind,
        answer: await client.largestSequence({
          ...subject,
          unitTokens: Number(asked.unitTokens),
          sequences: Number(asked.sequences),
        }),
      };
    case "pareto":
      return { kind, answer: await client.paretoFront(subject) };
    case "cluster": {
      const seconds = Number(asked.days) * DAY_SECONDS;
      const price = typeof asked.price === "number" ? { pricePerGpuHour: asked.price } : {};
      const nodes = asked.nodes.trim() === "" ? {} : { nodes: values("nodes", asked.nodes) };
      return {
        kind,
        seconds,
        answer: await client.cheapestCluster({
          ...subject,
          tokens: trainingTokens(asked.tokens) ?? 0,
          seconds,
          ...price,
          ...nodes,
        }),
      };
    }
  }
}

/** Sizes as a job file has them; undefined where it says nothing that can be read. */
function writtenSizes(job: unknown): JobSizes {
  const { sequenceLengthTokens, globalBatchTokens, cluster } = (job ?? {}) as {
    sequenceLengthTokens?: unknown;
    globalBatchTokens?: unknown;
    cluster?: { nodes?: unknown; memoryPerGpu?: unknown } | null;
  };
  const count = (value: unknown, kind: QuantityKind): number | undefined => {
    const read =
      typeof value === "number" || typeof value === "string" ? parseQuantity(value, kind) : undefined;
    return read === 0 ? undefined : read;
  };
  return {
    sequenceLengthTokens: count(sequenceLengthTokens, "lengthTokens"),
    globalBatchTokens: count(globalBatchTokens, "lengthTokens"),
    nodes: typeof cluster?.nodes === "number" ? count(cluster.nodes, "lengthTokens") : undefined,
    memoryPerGpuBytes: count(cluster?.memoryPerGpu, "bytes"),
  };
}
const sizesOf = ({ spec: { sequenceLengthTokens, globalBatchTokens, cluster } }: JobDetail): JobSizes => ({
  sequenceLengthTokens,
  globalBatchTokens,
  nodes: cluster.nodes,
  memoryPerGpuBytes: cluster.memoryPerGpuBytes,
});

const writtenName = (job: unknown): string => {
  const name = (job as { name?: unknown } | undefined)?.name;
  return typeof name === "string" ? name : "job";
};

interface Done {
  readonly outcome: Outcome;
  readonly jobName: string;
  /** Undefined where a job file does not say it. */
  readonly room: Room | undefined;
}

/** What plans may use of a GPU, and what a headroom, asked for or the job's own, keeps free beside it. */
function roomOf(
  memoryBytes: number | undefined,
  { headroom: asked }: Subject,
  own: unknown,
): Room | undefined {
  const headroom = asked ?? (typeof own === "string" ? own : undefined);
  if (memoryBytes === undefined) return undefined;
  const keptBytes = headroom === undefined ? 0 : (readHeadroom(headroom)?.bytesOf(memoryBytes) ?? 0);
  return { limitBytes: memoryBytes - keptBytes, keptBytes };
}

/** What is asked, with what nobody wrote filled in from the job's sizes. */
function filled(written: Asked, sizes: JobSizes, isKnown: boolean): Filled {
  return {
    ...written,
    values: written.values ?? (isKnown ? firstValues(written.axis, sizes) : ""),
    unitTokens: written.unitTokens ?? Math.min(1024, sizes.sequenceLengthTokens ?? 1024),
  };
}

function useQuestion(kind: QuestionKind, asked: Filled) {
  const { client } = useSession();
  return useMutation({
    mutationFn: async (subject: Subject): Promise<Done> => {
      const outcome = await ask(client, subject, kind, asked);
      if (subject.jobId === undefined) {
        const { memoryPerGpuBytes } = writtenSizes(subject.job);
        return {
          outcome,
          jobName: writtenName(subject.job),
          room: roomOf(
            memoryPerGpuBytes,
            subject,
            (subject.job as { headroom?: unknown } | undefined)?.headroom,
          ),
        };
      }
      const { name, spec } = await client.getJob(subject.jobId);
      return { outcome, jobName: name, room: roomOf(spec.cluster.memoryPerGpuBytes, subject, spec.headroom) };
    },
  });
}

type Source = "job" | "file";

/** The job that questions are about: a submitted one, or what somebody pasted. */
function useSubject() {
  const { client } = useSession();
  const { job: given } = route.useSearch();
  const listed = useJobs({});
  const jobs = listed.data?.pages.flatMap(({ items }) => items) ?? [];
  const [source, setSource] = useState<Source | undefined>();
  // Without jobs there is nothing to choose from.
  const shown = source ?? (given !== undefined || jobs.length > 0 || listed.isPending ? "job" : "file");
  const jobId = given ?? jobs[0]?.id;
  const file = useJobText("what-if");
  const submitted = useQuery({
    queryKey: jobKey(jobId ?? ""),
    queryFn: ({ signal }) => client.getJob(jobId ?? "", { signal }),
    enabled: shown === "job" && jobId !== undefined,
  });
  const pasted = useMemo(() => readJobDocument(file.text), [file.text]);
  // Until the job is known nothing is suggested: what is would change under the reader's eyes.
  const isKnown = shown === "file" || jobId === undefined || !submitted.isPending;
  const sizes =
    shown === "job" && submitted.data
      ? sizesOf(submitted.data)
      : writtenSizes(shown === "file" && "document" in pasted ? pasted.document.value : undefined);
  return { shown, setSource, jobs, isListing: listed.isPending, jobId, file, isKnown, sizes };
}

function SubjectFields({ shown, setSource, jobs, isListing, jobId, file }: ReturnType<typeof useSubject>) {
  return (
    <>
      <SegmentedControl
        aria-label="Where the job comes from"
        className="fit"
        value={shown}
        onChange={(value) => setSource(value === "file" ? "file" : "job")}
        data={[
          { value: "job", label: "A submitted job" },
          { value: "file", label: "A job file" },
        ]}
      />
      {shown === "job" ? (
        <JobChoice jobs={jobs} isListing={isListing} jobId={jobId} />
      ) : (
        <JobField file={file} minRows={8} />
      )}
    </>
  );
}

function JobChoice({
  jobs,
  isListing,
  jobId,
}: Pick<ReturnType<typeof useSubject>, "jobs" | "isListing" | "jobId">) {
  const navigate = route.useNavigate();
  if (isListing) return <Loading label="jobs" rows={1} />;
  if (jobId === undefined) return <Text size="sm">No job was submitted yet: paste a job file instead.</Text>;
  const known = jobs.some(({ id }) => id === jobId);
  return (
    <NativeSelect
      label="Job"
      value={jobId}
      onChange={(event) => void navigate({ search: { job: event.currentTarget.value }, replace: true })}
      data={[
        ...(known ? [] : [{ value: jobId, label: jobId }]),
        ...jobs.map(({ id, name, model, cluster }) => ({
          value: id,
          label: `${name} (${model}, ${cluster})`,
        })),
      ]}
    />
  );
}

export function WhatIfPage() {
  const about = useSubject();
  const { shown, jobId, file, isKnown, sizes } = about;
  const [profile, setProfile] = useState("");
  const [headroom, setHeadroom] = useState("");
  const [kind, setKind] = useState<QuestionKind>("sweep");
  const [written, setAsked] = useState(ASKED_FIRST);
  const [tried, setTried] = useState(false);
  const asked = filled(written, sizes, isKnown);
  // A sweep of memory varies what a headroom would keep free.
  const takesHeadroom = kind !== "sweep" || asked.axis !== "memory";
  const badHeadroom = takesHeadroom ? headroomFault(headroom) : undefined;
  const fault = faultOf(kind, asked);
  const mayAsk = fault === undefined && badHeadroom === undefined;
  const question = useQuestion(kind, asked);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    setTried(true);
    const named = { ...(profile === "" ? {} : { profile }), ...(takesHeadroom ? headroomOf(headroom) : {}) };
    if (shown === "job") {
      if (mayAsk && jobId !== undefined) question.mutate({ jobId, ...named });
      return;
    }
    const document = file.read();
    if (mayAsk && document) question.mutate({ job: document.value, ...named });
  };
  return (
    <Page
      title="What if"
      lead="The best plan under other circumstances, by prediction. Nothing is run or stored."
    >
      <form onSubmit={submit} className="job-editor">
        <SubjectFields {...about} />
        <div className="fields">
          <QuestionChoice
            kind={kind}
            onChange={(chosen) => {
              setKind(chosen);
              setTried(false);
            }}
          />
          <ProfileChoice shown={shown} profile={profile} onChange={setProfile} />
          {takesHeadroom && (
            <HeadroomField value={headroom} onChange={setHeadroom} error={tried ? badHeadroom : undefined} />
          )}
        </div>
        <QuestionFields
          kind={kind}
          asked={asked}
          onChange={(changes) => setAsked((before) => ({ ...before, ...changes }))}
          fault={tried ? fault : undefined}
          whyValues={written.values === null && isKnown ? whyFirstValues(written.axis, sizes) : undefined}
        />
        {shown === "file" && file.faults}
        {question.error && (
          <Refusal error={question.error} lineOf={shown === "file" ? file.lineOf : undefined} />
        )}
        <Group gap="xs">
          <Button
            type="submit"
            loading={question.isPending}
            disabled={shown === "job" ? jobId === undefined || !isKnown : file.text.trim() === ""}
          >
            Ask
          </Button>
        </Group>
      </form>
      <Answer question={question} />
    </Page>
  );
}

function QuestionChoice({ kind, onChange }: { kind: QuestionKind; onChange: (kind: QuestionKind) => void }) {
  return (
    <NativeSelect
      label="Question"
      className="wide-field"
      description="What is to be known"
      value={kind}
      onChange={(event) => onChange(event.currentTarget.value as QuestionKind)}
      data={[...QUESTIONS]}
    />
  );
}

function ProfileChoice({
  shown,
  profile,
  onChange,
}: {
  shown: Source;
  profile: string;
  onChange: (profile: string) => void;
}) {
  return (
    <ProfileSelect
      description="What was measured of the cluster"
      otherwise={
        shown === "job"
          ? "The one that the job was planned with"
          : "As the job says, or the newest of its cluster"
      }
      value={profile}
      onChange={onChange}
    />
  );
}

function Answer({ question }: { question: ReturnType<typeof useQuestion> }) {
  return (
    <>
      <div aria-live="polite">
        {question.isPending && (
          <Text size="sm" c="dimmed">
            Every plan of the space is being evaluated, for each case…
          </Text>
        )}
      </div>
      {question.data && !question.isPending && (
        <>
          <WhatIfResult
            outcome={question.data.outcome}
            room={question.data.room}
            jobName={question.data.jobName}
          />
          <EstimatesNote estimates={question.data.outcome.answer.estimates} />
        </>
      )}
    </>
  );
}
