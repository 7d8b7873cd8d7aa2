import type { JobDetail } from "@internevo/contracts";
import { PRIORITIES, type Priority } from "@internevo/domain";
import { NativeSelect, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { jobKey } from "../../data/queries.ts";
import { useSession } from "../../session/session.tsx";

const PRIORITY_WORDS: Readonly<Record<Priority, string>> = {
  low: "Low priority",
  normal: "Normal priority",
  high: "High priority",
};

/** Gives a job that waits another place in the queue. */
export function PrioritySelect({ job }: { job: JobDetail }) {
  const { client } = useSession();
  const queries = useQueryClient();
  const change = useMutation({
    mutationFn: (priority: Priority) => client.setPriority(job.id, priority),
    onSuccess: (changed) => queries.setQueryData(jobKey(job.id), changed),
  });
  return (
    <>
      <NativeSelect
        aria-label="Priority"
        value={change.isPending ? change.variables : job.priority}
        disabled={change.isPending}
        onChange={(event) => change.mutate(event.currentTarget.value as Priority)}
        data={PRIORITIES.map((value) => ({ value, label: PRIORITY_WORDS[value] }))}
      />
      {change.isError && (
        <Text size="xs" className="text-bad" role="alert">
          {change.error.message}
        </Text>
      )}
    </>
  );
}
