import { Alert, Button, Group, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import type { JobDetail } from "@internevo/contracts";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Dialog } from "../dialog.tsx";
import { jobKey } from "../../data/queries.ts";
import { useSession } from "../../session/session.tsx";

export function CancelButton({ job }: { job: JobDetail }) {
  const { client } = useSession();
  const queries = useQueryClient();
  const [opened, { open, close }] = useDisclosure();
  const cancel = useMutation({
    mutationFn: () => client.cancelJob(job.id),
    onSuccess: (answer) => {
      queries.setQueryData(jobKey(job.id), answer);
      void queries.invalidateQueries({ queryKey: ["jobs"] });
      close();
    },
  });
  return (
    <>
      <Button
        variant="default"
        className="button-danger"
        onClick={open}
        disabled={job.state === "cancelling"}
      >
        {job.state === "cancelling" ? "Cancelling…" : "Cancel the job"}
      </Button>
      <Dialog opened={opened} onClose={close} title={`Cancel ${job.name}?`}>
        <Text size="sm">
          Its processes are stopped. Measurements and checkpoints are kept, and you can let it go on later.
        </Text>
        {cancel.isError && (
          <Alert color="red" mt="sm" role="alert">
            {cancel.error.message}
          </Alert>
        )}
        <Group justify="flex-end" mt="md">
          <Button variant="default" onClick={close} data-autofocus>
            Keep it going
          </Button>
          <Button color="red.9" loading={cancel.isPending} onClick={() => cancel.mutate()}>
            Cancel the job
          </Button>
        </Group>
      </Dialog>
    </>
  );
}
