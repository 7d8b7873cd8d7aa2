import { Alert, NumberInput, SegmentedControl, Text } from "@mantine/core";
import type { PlanningResult } from "@internevo/domain";
import { useMutation } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { HeadroomField, headroomFault, headroomOf } from "../components/headroom-field.tsx";
import { JobEditor, useJobText } from "../components/job-editor.tsx";
import { Page, Section } from "../components/page.tsx";
import { EstimatesNote } from "../components/plan/estimates-note.tsx";
import { AskPlan } from "../components/plan/ask-plan.tsx";
import { ComparePlans } from "../components/plan/compare-plans.tsx";
import { MemoryChart, TimeChart } from "../components/plan/plan-charts.tsx";
import { PlanTable } from "../components/plan/plan-table.tsx";
import { Rejections } from "../components/plan/rejections.tsx";
import { ProfileSelect } from "../components/profile-select.tsx";
import type { Subject } from "../data/advice.ts";
import { candidateRows } from "../data/plan-rows.ts";
import { useSession } from "../session/session.tsx";
import { formatBytes, formatInteger } from "../text/format.ts";

function Result({ result, subject }: { result: PlanningResult; subject: Subject }) {
  const [list, setList] = useState<"all" | "runnable">("all");
  const candidates = list === "all" ? result.candidates : result.runnableCandidates;
  const rows = useMemo(() => candidateRows(candidates), [candidates]);
  const rowsKey = rows.map(({ key }) => key).join("\n");
  const isMixed = result.runnableCandidates.length > 0 && result.candidates.some(({ runnable }) => !runnable);
  return (
    <>
      {result.candidates.length > 0 ? (
        <>
          <Section
            title="Plans by predicted step time"
            about={`${result.job}, with profile ${result.profile}. Nothing was run or stored.`}
          >
            {isMixed && (
              <SegmentedControl
                mb="xs"
                aria-label="Which plans"
                value={list}
                onChange={(value) => setList(value === "runnable" ? "runnable" : "all")}
                data={[
                  { value: "all", label: "All plans" },
                  { value: "runnable", label: "Those that InternEvo’s trainer can run" },
                ]}
              />
            )}
            <PlanTable rows={rows} withMeasured={false} label="Plans" />
            <EstimatesNote estimates={result.estimates} />
          </Section>
          {rows.length > 1 && (
            <Section
              title="Compare two plans"
              folded
              about="What one saves and the other pays, term by term, by prediction."
            >
              <ComparePlans key={rowsKey} rows={rows} subject={subject} />
            </Section>
          )}
          <Section
            title="Ask about a plan"
            folded
            about="Why it is not chosen, what its ranks’ memory holds, and its configuration for other frameworks."
          >
            <AskPlan
              key={rowsKey}
              rows={rows}
              subject={subject}
              jobName={result.job}
              limitBytes={result.memoryLimitBytes}
            />
          </Section>
          <Section
            title="Memory by line"
            folded
            about={`Predicted for the fullest rank, against the ${formatBytes(result.memoryLimitBytes)} that a rank may use${subject.headroom === undefined ? "" : `: ${subject.headroom} of its GPU stays free`}.`}
          >
            <MemoryChart rows={rows} limitBytes={result.memoryLimitBytes} />
          </Section>
          <Section title="Where the time goes" folded about="Predicted time of one step by cause.">
            <TimeChart rows={rows} />
          </Section>
        </>
      ) : (
        <Alert color="yellow" title="No plan fits">
          Below is what rejected them, and what would need the least memory.
        </Alert>
      )}
      <Section
        title="Why plans were rejected"
        folded={`${formatInteger(result.counts.evaluated - result.counts.feasible - (result.counts.pruned ?? 0))} of ${formatInteger(result.counts.evaluated)}`}
      >
        <Rejections planning={result} />
      </Section>
    </>
  );
}

export function PlanPage() {
  const { client } = useSession();
  const file = useJobText("plan");
  const [profile, setProfile] = useState("");
  const [headroom, setHeadroom] = useState("");
  const [tried, setTried] = useState(false);
  const fault = headroomFault(headroom);
  const [top, setTop] = useState<number | string>(10);
  const plan = useMutation({
    mutationFn: async (job: unknown) => {
      const subject: Subject = { job, ...(profile === "" ? {} : { profile }), ...headroomOf(headroom) };
      return {
        subject,
        result: await client.plan({ job, ...subject, ...(typeof top === "number" ? { top } : {}) }),
      };
    },
  });
  return (
    <Page title="Plan" lead="Ranks the plans of a job by prediction, without running or storing anything.">
      <JobEditor
        file={file}
        actions={[
          {
            label: "Show the plans",
            busy: plan.isPending,
            onRun: (job) => {
              setTried(true);
              if (fault === undefined) plan.mutate(job);
            },
          },
        ]}
        error={plan.error}
      >
        <div className="fields">
          <ProfileSelect
            description="What was measured of the cluster"
            otherwise="As the job says, or the newest of its cluster"
            value={profile}
            onChange={setProfile}
          />
          <HeadroomField value={headroom} onChange={setHeadroom} error={tried ? fault : undefined} />
          <NumberInput
            label="Plans"
            description="How many to show"
            min={1}
            max={100}
            allowDecimal={false}
            value={top}
            onChange={setTop}
          />
        </div>
      </JobEditor>
      <div aria-live="polite">
        {plan.isPending && (
          <Text size="sm" c="dimmed">
            Every plan of the space is being evaluated…
          </Text>
        )}
      </div>
      {plan.data && <Result result={plan.data.result} subject={plan.data.subject} />}
    </Page>
  );
}
