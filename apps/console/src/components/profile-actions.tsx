import { Alert, Button, Group, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Dialog } from "./dialog.tsx";
import { useSession } from "../session/session.tsx";

/** Measures a profile's cluster again, or takes the profile out of use. */
export function ProfileActions({ id, name, isGiven }: { id: string; name: string; isGiven: boolean }) {
  const { client } = useSession();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [opened, { open, close }] = useDisclosure();
  const discard = useMutation({
    mutationFn: () => client.discardProfile(id),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ["profiles"] });
      await navigate({ to: "/clusters" });
      // Asked for again only by whoever opens its page: it may be gone.
      queries.removeQueries({ queryKey: ["profile", id] });
    },
  });
  const measure = useMutation({
    mutationFn: () => client.measureProfile(id),
    onSuccess: (job) => navigate({ to: "/jobs/$jobId", params: { jobId: job.id } }),
  });
  return (
    <>
      {!isGiven && (
        <Button variant="default" loading={measure.isPending} onClick={() => measure.mutate()}>
          Measure again
        </Button>
      )}
      <Button variant="default" className="button-danger" onClick={open}>
        Discard
      </Button>
      {measure.isError && (
        <Text size="xs" className="text-bad" role="alert">
          {measure.error.message}
        </Text>
      )}
      <Dialog opened={opened} onClose={close} title={`Discard ${name}?`}>
        <Text size="sm">
          Jobs that used this profile still show it. No other job uses it. If it is its cluster’s newest, the
          next job measures the cluster: it uses an older profile only if it names it.
        </Text>
        {discard.isError && (
          <Alert color="red" mt="sm" role="alert">
            {discard.error.message}
          </Alert>
        )}
        <Group justify="flex-end" mt="md">
          <Button variant="default" onClick={close} data-autofocus>
            Keep it
          </Button>
          <Button color="red.9" loading={discard.isPending} onClick={() => discard.mutate()}>
            Discard the profile
          </Button>
        </Group>
      </Dialog>
    </>
  );
}
