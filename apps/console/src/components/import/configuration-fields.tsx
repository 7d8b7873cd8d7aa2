import type { FrameworkName } from "@internevo/contracts";
import { Alert, Button, FileButton, Group, Textarea } from "@mantine/core";
import { useState } from "react";
import { CONFIGURATION_FORMS, sortFiles } from "../../text/frameworks.ts";

export interface ConfigurationText {
  readonly main: string;
  readonly beside: string;
}

/** What a request may hold, with room for what is around it. */
const MOST_BYTES = 1_000_000;

interface ConfigurationFieldsProps {
  readonly framework: FrameworkName;
  readonly text: ConfigurationText;
  readonly onChange: (text: ConfigurationText) => void;
}

/** The files of a configuration, pasted or picked. */
export function ConfigurationFields({ framework, text, onChange }: ConfigurationFieldsProps) {
  const { main, beside } = CONFIGURATION_FORMS[framework];
  const [fault, setFault] = useState<string>();
  const pick = async (picked: File[]): Promise<void> => {
    const size = picked.reduce((total, file) => total + file.size, 0);
    setFault(
      size > MOST_BYTES
        ? `${picked.map(({ name }) => name).join(", ")}: these are no configurations, they are larger than 1 MB`
        : undefined,
    );
    if (picked.length === 0 || size > MOST_BYTES) return;
    const sorted = sortFiles(
      framework,
      await Promise.all(picked.map(async (file) => ({ name: file.name, text: await file.text() }))),
    );
    onChange({ main: sorted.main?.text ?? text.main, beside: sorted.beside?.text ?? text.beside });
  };
  const shared = {
    autosize: true,
    maxRows: 24,
    spellCheck: false,
    autoComplete: "off",
    classNames: { input: "code-input" },
  } as const;
  return (
    <>
      <Textarea
        {...shared}
        label={main.name}
        description={main.about}
        minRows={8}
        value={text.main}
        onChange={(event) => onChange({ ...text, main: event.currentTarget.value })}
        required
      />
      {beside && (
        <Textarea
          {...shared}
          label={beside.name}
          description={beside.about}
          minRows={3}
          value={text.beside}
          onChange={(event) => onChange({ ...text, beside: event.currentTarget.value })}
        />
      )}
      <Group gap="xs">
        <FileButton multiple onChange={(files) => void pick(files)}>
          {(props) => (
            <Button {...props} variant="default">
              {beside ? "Choose files…" : "Choose a file…"}
            </Button>
          )}
        </FileButton>
      </Group>
      {fault !== undefined && (
        <Alert color="red" role="alert" title="Not read">
          {fault}
        </Alert>
      )}
    </>
  );
}
