import {
  formatCounted,
  percentOf,
  REPLAN_POLICIES,
  thresholdNote,
  type DailyWindow,
  type ReplanPolicy,
  type Workload,
} from "@internevo/domain";
import { Alert, Button, Checkbox, Group, NativeSelect, NumberInput, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { percentFault, shareOfField } from "../../text/percent.ts";
import { useSession } from "../../session/session.tsx";
import { Dialog } from "../dialog.tsx";

export const POLICY_WORDS: Readonly<Record<ReplanPolicy, string>> = {
  notify: "Wait for an answer",
  try: "A run tries it, then wait for an answer",
  apply: "A run goes on under it",
};

/** When runs may be stopped for what was proposed. */
export const windowWords = ({ changeWindow, timeZone }: Workload): string =>
  changeWindow === null ? "at any time" : `${changeWindow.from} to ${changeWindow.to}, ${timeZone}`;

export const comparisonWords = ({ compareSteps, notInLastSteps }: Workload): string =>
  `${formatCounted(compareSteps, "step")} are compared; none in the last ${notInLastSteps}`;

function useChange(id: string, onSuccess: () => void) {
  const { client } = useSession();
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (change: Parameters<typeof client.updateWorkload>[1]) => client.updateWorkload(id, change),
    onSuccess: async () => {
      await Promise.all([
        queries.invalidateQueries({ queryKey: ["workloads"] }),
        queries.invalidateQueries({ queryKey: ["workload", id] }),
      ]);
      onSuccess();
    },
  });
}

/** Stops the schedule of a workload, or lets it go on. */
export function ScheduleBox({ workload: { id, enabled } }: { workload: Workload }) {
  const change = useChange(id, () => {});
  return (
    <div>
      <Checkbox
        label="By schedule"
        checked={enabled}
        disabled={change.isPending}
        onChange={(event) => change.mutate({ enabled: event.currentTarget.checked })}
      />
      {change.isError && (
        <Alert color="red" role="alert">
          {change.error.message}
        </Alert>
      )}
    </div>
  );
}

const TIME = /^([01]\d|2[0-3]):[0-5]\d$/;
const NIGHT: DailyWindow = { from: "22:00", to: "06:00" };

export function EditButton({ workload }: { workload: Workload }) {
  const [opened, { open, close }] = useDisclosure();
  return (
    <>
      <Button variant="default" size="compact-sm" onClick={open}>
        Edit…
      </Button>
      <Dialog opened={opened} onClose={close} title={`Edit ${workload.name}`}>
        {opened && <EditForm workload={workload} onClose={close} />}
      </Dialog>
    </>
  );
}

interface OfRuns {
  readonly changeWindow: DailyWindow | null;
  readonly mayMeasureRuns: boolean;
}

/** What a policy that changes runs asks for. */
function RunFields({ value, onChange }: { value: OfRuns; onChange: (value: OfRuns) => void }) {
  const { changeWindow: hours } = value;
  const time = (name: keyof DailyWindow, label: string, { [name]: at }: DailyWindow) => (
    <TextInput
      label={label}
      value={at}
      error={TIME.test(at) ? undefined : "A time of day, such as 22:00"}
      onChange={(event) =>
        onChange({ ...value, changeWindow: { ...NIGHT, ...hours, [name]: event.currentTarget.value } })
      }
    />
  );
  return (
    <>
      <Checkbox
        mt="sm"
        label="Stop runs within some hours of the day only"
        checked={hours !== null}
        onChange={(event) => onChange({ ...value, changeWindow: event.currentTarget.checked ? NIGHT : null })}
      />
      {hours !== null && (
        <Group mt="xs" align="start">
          {time("from", "From", hours)}
          {time("to", "To", hours)}
        </Group>
      )}
      <Checkbox
        mt="sm"
        label="A run may stop at a checkpoint to measure its cluster"
        checked={value.mayMeasureRuns}
        onChange={(event) => onChange({ ...value, mayMeasureRuns: event.currentTarget.checked })}
      />
    </>
  );
}

const GAIN_PERCENT = { min: 0, max: 100 };

function EditForm({ workload, onClose }: { workload: Workload; onClose: () => void }) {
  const [cron, setCron] = useState(workload.cron);
  const [timeZone, setTimeZone] = useState(workload.timeZone);
  const [policy, setPolicy] = useState<ReplanPolicy>(workload.policy);
  const [percent, setPercent] = useState<number | string>(percentOf(workload.gainThreshold));
  const gainFault = percentFault(percent, GAIN_PERCENT.min, GAIN_PERCENT.max);
  const note =
    gainFault === undefined ? thresholdNote({ policy, gainThreshold: shareOfField(percent) }) : undefined;
  const { changeWindow, mayMeasureRuns } = workload;
  const [ofRuns, setOfRuns] = useState<OfRuns>({ changeWindow, mayMeasureRuns });
  const change = useChange(workload.id, onClose);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (gainFault !== undefined) return;
        change.mutate({ cron, timeZone, policy, gainThreshold: shareOfField(percent), ...ofRuns });
      }}
    >
      <TextInput
        label="Schedule"
        description="Five fields: minute, hour, day of month, month, day of week"
        value={cron}
        onChange={(event) => setCron(event.currentTarget.value)}
      />
      <TextInput
        mt="sm"
        label="Time zone"
        value={timeZone}
        onChange={(event) => setTimeZone(event.currentTarget.value)}
      />
      <NumberInput
        mt="sm"
        label="Minimum gain"
        description="In percent of the step time: by prediction for a proposal, and as measured to keep it"
        {...GAIN_PERCENT}
        value={percent}
        onChange={setPercent}
        error={gainFault}
      />
      <NativeSelect
        mt="sm"
        label="A better plan"
        value={policy}
        onChange={(event) => setPolicy(event.currentTarget.value as ReplanPolicy)}
        data={REPLAN_POLICIES.map((value) => ({ value, label: POLICY_WORDS[value] }))}
      />
      {note !== undefined && (
        <Alert color="yellow" mt="sm">
          {note}
        </Alert>
      )}
      {policy !== "notify" && <RunFields value={ofRuns} onChange={setOfRuns} />}
      {change.isError && (
        <Alert color="red" mt="sm" role="alert">
          {change.error.message}
        </Alert>
      )}
      <Group justify="flex-end" mt="md">
        <Button variant="default" onClick={onClose}>
          Leave it
        </Button>
        <Button type="submit" loading={change.isPending} disabled={gainFault !== undefined}>
          Save
        </Button>
      </Group>
    </form>
  );
}
