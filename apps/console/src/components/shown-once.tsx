import { Alert, Button, Code, CopyButton, Group, Text } from "@mantine/core";

/** A secret that is not stored, and is shown this once. @param what what it is called: `token` */
export function ShownOnce({
  title,
  what,
  secret,
  onClose,
}: {
  title: string;
  what: string;
  secret: string;
  onClose: () => void;
}) {
  return (
    <Alert color="teal" title={title} role="status">
      <Text size="sm">Copy the {what} now. It cannot be shown again.</Text>
      <Code block className="wrapped">
        {secret}
      </Code>
      <Group gap="xs" mt="xs">
        <CopyButton value={secret}>
          {({ copied, copy }) => (
            <Button size="compact-sm" onClick={copy}>
              {copied ? "Copied" : `Copy the ${what}`}
            </Button>
          )}
        </CopyButton>
        <Button size="compact-sm" variant="default" onClick={onClose}>
          I have it
        </Button>
      </Group>
    </Alert>
  );
}
