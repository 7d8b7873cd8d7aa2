import type { JobCheck } from "@internevo/contracts";
import { measuredFirstWords, type MeasuredFirst, type PlanningResult } from "@internevo/domain";
import { Alert, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
import { stringify } from "yaml";
import { JobEditor, useJobText, type JobText } from "../components/job-editor.tsx";
import { LinkTo } from "../components/links.tsx";
import { Page, Section } from "../components/page.tsx";
import { PlanTable } from "../components/plan/plan-table.tsx";
import { Rejections } from "../components/plan/rejections.tsx";
import { ProblemDetails } from "../components/problem-details.tsx";
import { Failed } from "../components/states.tsx";
import { candidateRows } from "../data/plan-rows.ts";
import { jobKey, useJobFile } from "../data/queries.ts";
import { mayActAs, useSession } from "../session/session.tsx";

function MeasuredBefore({ first }: { first: MeasuredFirst | undefined }) {
  return first === undefined ? null : (
    <Text size="sm" mt="xs">
      {measuredFirstWords(first)}
    </Text>
  );
}

function Checked({ check: { job, warnings, measuredFirst } }: { check: JobCheck }) {
  return (
    <Section title="Checked">
      {warnings.length === 0 ? (
        <Alert color="teal" variant="light">
          It would be accepted.
        </Alert>
      ) : (
        <Alert color="yellow" title="It would be accepted">
          <ProblemDetails
            problem={{ type: "about:blank", title: "", status: 200, code: "job-invalid", errors: warnings }}
          />
        </Alert>
      )}
      <MeasuredBefore first={measuredFirst} />
      <details className="as-table">
        <summary>The whole job, with every default</summary>
        <pre className="document" tabIndex={0}>
          {stringify(job)}
        </pre>
      </details>
    </Section>
  );
}

function Planned({ result, first }: { result: PlanningResult; first: MeasuredFirst | undefined }) {
  const rows = useMemo(() => candidateRows(result.candidates), [result]);
  return (
    <Section
      title="Plans by predicted step time"
      about={`With profile ${result.profile}. Nothing was run or stored.`}
    >
      <MeasuredBefore first={first} />
      {rows.length > 0 ? (
        <PlanTable rows={rows} withMeasured={false} label="Plans" />
      ) : (
        <>
          <Alert color="yellow" title="No plan fits" mb="sm">
            Below is what rejected them.
          </Alert>
          <Rejections planning={result} />
        </>
      )}
    </Section>
  );
}

const route = getRouteApi("/submit");

/** Opens the form with the file of the job that the address names. */
function FromJob({ file, jobId }: { file: JobText; jobId: string }) {
  const { data, error, refetch } = useJobFile(jobId);
  const { offer } = file;
  const offered = useRef<string>(undefined);
  useEffect(() => {
    if (data === undefined || offered.current === jobId) return;
    offered.current = jobId;
    offer(stringify(data));
  }, [data, jobId, offer]);
  if (error) return <Failed what="job" error={error} onRetry={() => void refetch()} />;
  return data === undefined ? null : (
    <Text size="sm">
      From job{" "}
      <LinkTo to="/jobs/$jobId" params={{ jobId }} size="sm">
        {data.name}
      </LinkTo>
      : change what is to be different. What follows from other fields is left out.
    </Text>
  );
}

type Action = "check" | "plan" | "submit";

export function SubmitPage() {
  const session = useSession();
  const { client } = session;
  const navigate = useNavigate();
  const queries = useQueryClient();
  const file = useJobText("submit");
  const { job: from } = route.useSearch();
  const [last, setLast] = useState<Action>();
  // The same document sent twice, after an answer that got lost, is one job.
  const lastSent = useRef<{ body: string; key: string }>(undefined);
  const submit = useMutation({
    mutationFn: (job: unknown) => {
      const body = JSON.stringify(job);
      if (lastSent.current?.body !== body) lastSent.current = { body, key: crypto.randomUUID() };
      return client.submitJob(job, { idempotencyKey: lastSent.current.key });
    },
    onSuccess: (job) => {
      lastSent.current = undefined;
      file.forget();
      queries.setQueryData(jobKey(job.id), job);
      void queries.invalidateQueries({ queryKey: ["jobs"] });
      void navigate({ to: "/jobs/$jobId", params: { jobId: job.id } });
    },
  });
  const check = useMutation({ mutationFn: (job: unknown) => client.checkJob(job) });
  const plan = useMutation({ mutationFn: (job: unknown) => client.plan({ job, top: 10 }) });
  const allowed = mayActAs(session, "operator");
  const done = { check, plan, submit };
  const run =
    (action: Action) =>
    (job: unknown): void => {
      setLast(action);
      done[action].mutate(job);
      // What is measured before is said beside the plans too; what speaks against submitting is the check's
      // to say.
      if (action === "plan" && allowed) check.mutate(job);
    };
  const busy = submit.isPending || check.isPending || plan.isPending;
  return (
    <Page
      title="Submit a job"
      above={
        <LinkTo to="/jobs" size="sm">
          ← Jobs
        </LinkTo>
      }
      lead="The cluster is profiled, every plan is ranked, the best are tried for real, and the winner trains."
    >
      {!allowed && <Alert color="yellow">Your role is {session.role}; submitting takes an operator.</Alert>}
      {from !== undefined && <FromJob file={file} jobId={from} />}
      <JobEditor
        file={file}
        error={last === undefined ? null : done[last].error}
        actions={[
          { label: "Submit", busy: submit.isPending, onRun: run("submit"), disabled: !allowed || busy },
          { label: "Check", busy: check.isPending, onRun: run("check"), disabled: !allowed || busy },
          { label: "Plan first", busy: plan.isPending, onRun: run("plan"), disabled: busy },
        ]}
      />
      <div aria-live="polite">
        {plan.isPending && (
          <Text size="sm" c="dimmed">
            Every plan of the space is being evaluated…
          </Text>
        )}
      </div>
      {last === "check" && check.data && <Checked check={check.data} />}
      {last === "plan" && plan.data && <Planned result={plan.data} first={check.data?.measuredFirst} />}
    </Page>
  );
}
