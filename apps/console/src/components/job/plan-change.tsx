import type { JobDetail } from "@internevo/contracts";
import {
  formatSeconds,
  isDismissible,
  isOpenPlanChange,
  isTerminal,
  namesAPlan,
  PLAN_CHANGE_STATE_WORDS,
  planChangeWords,
  planLabel,
  type PlanChange,
  type PlanChangeState,
} from "@internevo/domain";
import { Alert, Button, Group, NativeSelect, NumberInput, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { PlanRow } from "../../data/plan-rows.ts";
import { jobKey } from "../../data/queries.ts";
import { mayActAs, useSession } from "../../session/session.tsx";
import { formatSignedPercent, sentence } from "../../text/format.ts";
import { percentFault, shareOfField } from "../../text/percent.ts";
import { ConfirmedButton } from "../confirmed-button.tsx";
import { Dialog } from "../dialog.tsx";
import { Moment } from "../moment.tsx";
import { Facts, Section } from "../page.tsx";
import { PlanText } from "../plan/plan-text.tsx";
import { Badge } from "../state-badge.tsx";

const TONES = {
  searching: "active",
  asked: "waiting",
  comparing: "active",
  kept: "good",
  returned: "quiet",
  dismissed: "quiet",
  superseded: "quiet",
} as const satisfies Record<PlanChangeState, string>;

/** Whether the plan that a job trains with can be changed now. */
const isChangeable = (job: JobDetail): boolean =>
  job.attempts.length > 0 &&
  !isTerminal(job.state) &&
  job.spec.checkpointing !== null &&
  (job.planChange === undefined || !isOpenPlanChange(job.planChange.state));

const GAIN_PERCENT = { min: -100, max: 100 };

function AskButton({ job, rows }: { job: JobDetail; rows: readonly PlanRow[] }) {
  const { client } = useSession();
  const queries = useQueryClient();
  const [opened, { open, close }] = useDisclosure();
  const current = job.attempts.at(-1)?.plan ?? job.chosen?.plan;
  const others = rows.filter(
    ({ key, candidate }) => candidate.runnable && (current === undefined || key !== planLabel(current)),
  );
  const [plan, setPlan] = useState(others[0]?.key ?? "");
  const [percent, setPercent] = useState<number | string>(0);
  const gainFault = percentFault(percent, GAIN_PERCENT.min, GAIN_PERCENT.max);
  const ask = useMutation({
    mutationFn: () => client.changePlan(job.id, { plan, gainThreshold: shareOfField(percent) }),
    onSuccess: () => {
      void queries.invalidateQueries({ queryKey: jobKey(job.id) });
      close();
    },
  });
  if (others.length === 0) return null;
  return (
    <>
      <Button variant="default" size="compact-sm" onClick={open}>
        Change the plan…
      </Button>
      <Dialog opened={opened} onClose={close} title="Train under another plan?">
        <Text size="sm">
          The ranks write a checkpoint, and go on under the other plan. After ten steps their times are
          compared with those before. With less gain than you ask for, the job goes back by itself.
        </Text>
        <NativeSelect
          mt="sm"
          label="Plan"
          value={plan}
          onChange={(event) => setPlan(event.currentTarget.value)}
          data={others.map(({ key, rank, candidate }) => ({
            value: key,
            label: `#${rank}, ${formatSeconds(candidate.predicted.stepTimeSeconds)} a step: ${key}`,
          }))}
        />
        <NumberInput
          mt="sm"
          label="Least gain"
          description="Measured, in percent of the step time; 0: it must not be slower"
          {...GAIN_PERCENT}
          value={percent}
          onChange={setPercent}
          error={gainFault}
        />
        {ask.isError && (
          <Alert color="red" mt="sm" role="alert">
            {ask.error.message}
          </Alert>
        )}
        <Group justify="flex-end" mt="md">
          <Button variant="default" onClick={close}>
            Leave it
          </Button>
          <Button loading={ask.isPending} disabled={gainFault !== undefined} onClick={() => ask.mutate()}>
            Change the plan
          </Button>
        </Group>
      </Dialog>
    </>
  );
}

const gainText = (gain: number | null): string => (gain === null ? "–" : formatSignedPercent(gain));

function Change({ change }: { change: PlanChange }) {
  const session = useSession();
  const queries = useQueryClient();
  const dismiss = async (): Promise<void> => {
    await session.client.dismissPlanChange(change.jobId, change.id);
    await queries.invalidateQueries({ queryKey: jobKey(change.jobId) });
  };
  const hasFound = namesAPlan(change);
  return (
    <>
      <Facts
        items={[
          {
            name: "State",
            value: <Badge tone={TONES[change.state]}>{PLAN_CHANGE_STATE_WORDS[change.state]}</Badge>,
            note: sentence(planChangeWords(change)),
            wide: true,
          },
          { name: "From", value: <PlanText plan={change.from.plan} />, wide: true },
          ...(hasFound
            ? [
                { name: "To", value: <PlanText plan={change.to.plan} />, wide: true },
                { name: "Predicted gain", value: gainText(change.predictedGain) },
              ]
            : []),
          { name: "Measured gain", value: gainText(change.measuredGain) },
          { name: "Asked for", value: <Moment at={change.createdAt} />, note: `by ${change.askedBy}` },
        ]}
      />
      {isDismissible(change) && mayActAs(session, "operator") && (
        <ConfirmedButton
          label="Dismiss"
          name="this plan change"
          question="Dismiss this plan change?"
          consequence="The job goes on under the plan that it has."
          keep="Keep it"
          confirm="Dismiss"
          onConfirm={dismiss}
        />
      )}
    </>
  );
}

/** The newest change of the plan that a job trains with, and the way to ask for another. */
export function PlanChangeSection({ job, rows }: { job: JobDetail; rows: readonly PlanRow[] }) {
  const session = useSession();
  const mayAsk = isChangeable(job) && mayActAs(session, "operator") && rows.length > 1;
  if (job.planChange === undefined && !mayAsk) return null;
  return (
    <Section
      title="Plan change"
      folded={job.planChange === undefined ? "none" : PLAN_CHANGE_STATE_WORDS[job.planChange.state]}
      about="A job that trains can go on under another plan from a checkpoint. Its losses stay the same, but for rounding."
    >
      {job.planChange && <Change change={job.planChange} />}
      {mayAsk && <AskButton job={job} rows={rows} />}
    </Section>
  );
}
