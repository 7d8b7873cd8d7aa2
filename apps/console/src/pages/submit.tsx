import { Alert } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useRef } from "react";
import { JobEditor } from "../components/job-editor.tsx";
import { LinkTo } from "../components/links.tsx";
import { Page } from "../components/page.tsx";
import { jobKey } from "../data/queries.ts";
import { mayActAs, useSession } from "../session/session.tsx";

export function SubmitPage() {
  const session = useSession();
  const navigate = useNavigate();
  const queries = useQueryClient();
  // The same document sent twice, after an answer that got lost, is one job.
  const lastSent = useRef<{ body: string; key: string }>(undefined);
  const submit = useMutation({
    mutationFn: (job: unknown) => {
      const body = JSON.stringify(job);
      if (lastSent.current?.body !== body) lastSent.current = { body, key: crypto.randomUUID() };
      return session.client.submitJob(job, { idempotencyKey: lastSent.current.key });
    },
    onSuccess: (job) => {
      lastSent.current = undefined;
      queries.setQueryData(jobKey(job.id), job);
      void queries.invalidateQueries({ queryKey: ["jobs"] });
      void navigate({ to: "/jobs/$jobId", params: { jobId: job.id } });
    },
  });
  const allowed = mayActAs(session, "operator");
  return (
    <Page title="Submit a job" above={<LinkTo to="/jobs" size="sm">← Jobs</LinkTo>} lead="The cluster is profiled, every plan is ranked, the best are tried for real, and the winner trains.">
      {!allowed && <Alert color="yellow">Your role is {session.role}; submitting takes an operator.</Alert>}
      <JobEditor action="Submit" busy={submit.isPending} error={submit.error} onSubmit={(job) => submit.mutate(job)} disabled={!allowed} />
    </Page>
  );
}
