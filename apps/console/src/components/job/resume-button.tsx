import { Alert, Button, Group, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import type { JobDetail } from "@internevo/contracts";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Dialog } from "../dialog.tsx";
import { jobKey } from "../../data/queries.ts";
import { useSession } from "../../session/session.tsx";

/** Of a job that is held, failed or was cancelled. */
export function ResumeButton({ job }: { job: JobDetail }) {
  const { client } = useSession();
  const queries = useQueryClient();
  const [opened, { open, close }] = useDisclosure();
  const resume = useMutation({
    mutationFn: () => client.resumeJob(job.id),
    onSuccess: (answer) => {
      queries.setQueryData(jobKey(job.id), answer);
      void queries.invalidateQueries({ queryKey: ["jobs"] });
      close();
    },
  });
  return (
    <>
      <Button variant="default" onClick={open}>
        Let it go on
      </Button>
      <Dialog opened={opened} onClose={close} title={`Let ${job.name} go on?`}>
        <Text size="sm">
          It goes on in the stage in which it stopped, with what it measured and its last checkpoint. What
          made it stop is not put right by that.
        </Text>
        {resume.isError && (
          <Alert color="red" mt="sm" role="alert">
            {resume.error.message}
          </Alert>
        )}
        <Group justify="flex-end" mt="md">
          <Button variant="default" onClick={close}>
            Not now
          </Button>
          <Button loading={resume.isPending} onClick={() => resume.mutate()} data-autofocus>
            Let it go on
          </Button>
        </Group>
      </Dialog>
    </>
  );
}
