import { Button, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useSession } from "../../session/session.tsx";

/** Plans a workload again now. */
export function RunButton({ id, name }: { id: string; name: string }) {
  const { client } = useSession();
  const queries = useQueryClient();
  const run = useMutation({
    mutationFn: () => client.runWorkload(id),
    onSuccess: () =>
      Promise.all([
        queries.invalidateQueries({ queryKey: ["workloads"] }),
        queries.invalidateQueries({ queryKey: ["workload", id] }),
        queries.invalidateQueries({ queryKey: ["proposals", id] }),
      ]),
  });
  return (
    <div>
      <Button
        size="compact-sm"
        variant="default"
        loading={run.isPending}
        onClick={() => run.mutate()}
        aria-label={`Run now: ${name}`}
      >
        Run now
      </Button>
      <div aria-live="polite">
        {run.isError && (
          <Text size="xs" className="text-bad">
            {run.error.message}
          </Text>
        )}
        {run.isSuccess && (
          <Text size="xs" c="dimmed">
            Queued
          </Text>
        )}
      </div>
    </div>
  );
}
