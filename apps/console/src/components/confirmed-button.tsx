import { Alert, Button, Group, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useMutation } from "@tanstack/react-query";
import { Dialog } from "./dialog.tsx";

/** A button for what stops work or cannot be undone: it asks first, and says what went wrong. */
export function ConfirmedButton({
  label,
  name,
  question,
  consequence,
  keep,
  confirm,
  isDanger = true,
  onConfirm,
}: {
  label: string;
  /** What it is about, for who cannot see the row. */
  name: string;
  question: string;
  consequence: string;
  keep: string;
  confirm: string;
  /** False for what takes nothing away. */
  isDanger?: boolean;
  onConfirm: () => Promise<unknown>;
}) {
  const [opened, { open, close }] = useDisclosure();
  const change = useMutation({ mutationFn: onConfirm, onSuccess: close });
  return (
    <>
      <Button
        size="compact-sm"
        variant="default"
        className={isDanger ? "button-danger" : ""}
        onClick={open}
        aria-label={`${label} ${name}`}
      >
        {label}
      </Button>
      <Dialog opened={opened} onClose={close} title={question}>
        <Text size="sm">{consequence}</Text>
        {change.isError && (
          <Alert color="red" mt="sm" role="alert">
            {change.error.message}
          </Alert>
        )}
        <Group justify="flex-end" mt="md">
          <Button variant="default" onClick={close} data-autofocus>
            {keep}
          </Button>
          <Button
            {...(isDanger ? { color: "red.9" } : {})}
            loading={change.isPending}
            onClick={() => change.mutate()}
          >
            {confirm}
          </Button>
        </Group>
      </Dialog>
    </>
  );
}
