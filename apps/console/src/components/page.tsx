import { Group, Stack, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { useId, type ReactNode } from "react";

interface PageProps {
  readonly title: string;
  readonly lead?: ReactNode;
  readonly above?: ReactNode;
  readonly actions?: ReactNode;
  readonly children: ReactNode;
}

export function Page({ title, lead, above, actions, children }: PageProps) {
  useDocumentTitle(`${title} · InternEvo`);
  return (
    <Stack gap="lg" className="page">
      <div>
        {above}
        <Group justify="space-between" align="flex-start" gap="sm">
          <Title order={1} className="page-title">{title}</Title>
          {actions !== undefined && <Group gap="xs">{actions}</Group>}
        </Group>
        {lead !== undefined && <Text component="div" size="sm" c="dimmed" mt={4}>{lead}</Text>}
      </div>
      {children}
    </Stack>
  );
}

/** A part of a page with its heading; it is a landmark by that heading. */
export function Section({ title, aside, about, children }: { title: string; aside?: ReactNode; about?: ReactNode; children: ReactNode }) {
  const id = useId();
  return (
    <section aria-labelledby={id} className="section">
      <Group justify="space-between" align="baseline" gap="xs" mb={about === undefined ? "xs" : 2}>
        <Title order={2} id={id}>{title}</Title>
        {aside}
      </Group>
      {about !== undefined && <Text component="p" size="sm" c="dimmed" mt={0} mb="xs">{about}</Text>}
      {children}
    </section>
  );
}

/** Named figures side by side. */
export function Facts({ items }: { items: readonly { name: string; value: ReactNode; note?: ReactNode; wide?: boolean }[] }) {
  return (
    <dl className="facts">
      {items.map(({ name, value, note, wide }) => (
        <div key={name} className={wide ? "fact-wide" : undefined}>
          <dt>{name}</dt>
          <dd>{value}{note !== undefined && <span className="fact-note">{note}</span>}</dd>
        </div>
      ))}
    </dl>
  );
}
