import { Group, Stack, Text, Title } from "@mantine/core";
import { useDisclosure, useDocumentTitle, useMediaQuery } from "@mantine/hooks";
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
          <Title order={1} className="page-title">
            {title}
          </Title>
          {actions !== undefined && <Group gap="xs">{actions}</Group>}
        </Group>
        {lead !== undefined && (
          <Text component="div" size="sm" c="dimmed" mt={4}>
            {lead}
          </Text>
        )}
      </div>
      {children}
    </Stack>
  );
}

/** Width up to which a page is one column: styles/data.css has the same. */
const NARROW = "(max-width: 48em)";

interface SectionProps {
  readonly title: string;
  readonly aside?: ReactNode;
  readonly about?: ReactNode;
  /** On a narrow screen it begins closed, under its heading and this summary. */
  readonly folded?: boolean | string;
  readonly children: ReactNode;
}

/** A part of a page with its heading; it is a landmark by that heading. */
export function Section({ title, aside, about, folded = false, children }: SectionProps) {
  const id = useId();
  const narrow = useMediaQuery(NARROW, window.matchMedia(NARROW).matches, { getInitialValueInEffect: false });
  // What is open on a wide screen stays so when it becomes narrow, with all that was asked in it.
  const [opened, { toggle }] = useDisclosure(!narrow);
  const folds = folded !== false && narrow;
  const open = !folds || opened;
  const below = about === undefined ? "xs" : 2;
  return (
    <section aria-labelledby={id} className={folds ? "section section-folds" : "section"}>
      <Group justify="space-between" align="baseline" gap="xs" mb={open ? below : 0}>
        <Title order={2} id={id}>
          {folds ? (
            <button type="button" className="fold-button" aria-expanded={opened} onClick={toggle}>
              <span className="chevron" aria-hidden="true">
                {opened ? "▾" : "▸"}
              </span>
              {title}
              {!opened && typeof folded === "string" && <span className="fold-summary">{folded}</span>}
            </button>
          ) : (
            title
          )}
        </Title>
        {open && aside}
      </Group>
      {open && about !== undefined && (
        <Text component="p" size="sm" c="dimmed" mt={0} mb="xs">
          {about}
        </Text>
      )}
      {open && children}
    </section>
  );
}

/** Named figures side by side. */
export function Facts({
  items,
}: {
  items: readonly { name: string; value: ReactNode; note?: ReactNode; wide?: boolean }[];
}) {
  return (
    <dl className="facts">
      {items.map(({ name, value, note, wide }) => (
        <div key={name} className={wide ? "fact-wide" : undefined}>
          <dt>{name}</dt>
          <dd>
            {value}
            {note !== undefined && <span className="fact-note">{note}</span>}
          </dd>
        </div>
      ))}
    </dl>
  );
}
