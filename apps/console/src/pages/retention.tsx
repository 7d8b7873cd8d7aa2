import type { Retention, RetentionAmounts, RetentionPreview } from "@internevo/contracts";
import {
  KEEP_FOR_EVER,
  removedWords,
  RETENTION_DAYS,
  RETENTION_KINDS,
  RETENTION_WORDS,
  retentionRunWords,
  type RetentionKind,
  type RetentionSettings,
} from "@internevo/domain";
import { Alert, Button, Group, NumberInput, Text, Title } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { ConfirmedButton } from "../components/confirmed-button.tsx";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../components/data-table.tsx";
import { Moment } from "../components/moment.tsx";
import { Page } from "../components/page.tsx";
import { Listed } from "../components/states.tsx";
import { useRetention } from "../data/queries.ts";
import { isOfInstallation, mayActAs, useSession } from "../session/session.tsx";
import { formatCounted, sentence } from "../text/format.ts";

/** Days as they stand in the fields: an empty one keeps its kind for ever. */
type Fields = Readonly<Record<RetentionKind, number | string>>;

const fieldsOf = (settings: RetentionSettings): Fields =>
  Object.fromEntries(RETENTION_KINDS.map((kind) => [kind, settings[kind] ?? ""])) as Fields;
const settingsOf = (fields: Fields): RetentionSettings =>
  Object.fromEntries(
    RETENTION_KINDS.map((kind) => [kind, fields[kind] === "" ? null : Number(fields[kind])]),
  ) as RetentionSettings;
const areAlike = (one: RetentionSettings, other: RetentionSettings): boolean =>
  RETENTION_KINDS.every((kind) => one[kind] === other[kind]);

const keptWords = (days: number | null): string =>
  days === null ? "for ever" : `${formatCounted(days, "day")} after the job's end`;
const ofJobs = (amounts: RetentionAmounts): string | undefined =>
  amounts.jobs === 0 ? undefined : `${removedWords(amounts)} of ${formatCounted(amounts.jobs, "job")}`;

function KindsTable({
  settings,
  fields,
  onField,
  preview,
  removed,
}: {
  settings: RetentionSettings;
  /** Undefined for who may not change them. */
  fields: Fields | undefined;
  onField: (kind: RetentionKind, days: number | string) => void;
  preview: RetentionPreview | undefined;
  removed: RetentionPreview["totals"] | undefined;
}) {
  return (
    <Table label="What ended jobs leave" narrow="cards">
      <Head>
        <Row>
          <Column>Kind</Column>
          <Column>Kept</Column>
          {preview && <Column>Would go now</Column>}
          <Column>Removed last</Column>
        </Row>
      </Head>
      <Body>
        {RETENTION_KINDS.map((kind) => (
          <Row key={kind} name={kind}>
            <RowTitle>{RETENTION_WORDS[kind]}</RowTitle>
            <Cell label="Kept">
              {fields === undefined ? (
                keptWords(settings[kind])
              ) : (
                <NumberInput
                  aria-label={`${RETENTION_WORDS[kind]}: days after a job's end; empty: for ever`}
                  value={fields[kind]}
                  placeholder="for ever"
                  suffix=" days"
                  min={RETENTION_DAYS.minimum}
                  max={RETENTION_DAYS.maximum}
                  clampBehavior="none"
                  allowDecimal={false}
                  allowNegative={false}
                  hideControls
                  w={140}
                  onChange={(days) => onField(kind, days)}
                />
              )}
            </Cell>
            {preview && <Cell label="Would go now">{ofJobs(preview.totals[kind])}</Cell>}
            <Cell label="Removed last">{removed && ofJobs(removed[kind])}</Cell>
          </Row>
        ))}
      </Body>
    </Table>
  );
}

/** Jobs of which something would go. */
function PreviewTable({ preview: { items, nextCursor, isWhole, remarks } }: { preview: RetentionPreview }) {
  if (items.length === 0) return <Text mt="md">Nothing would go now.</Text>;
  return (
    <>
      <Title order={2} size="h3" mt="lg" mb="xs">
        Jobs of which something would go
      </Title>
      <Table label="Jobs of which something would go" narrow="cards">
        <Head>
          <Row>
            <Column>Job</Column>
            <Column>Project</Column>
            <Column>Ended</Column>
            <Column>What would go</Column>
          </Row>
        </Head>
        <Body>
          {items.map(({ jobId, jobName, project, endedAt, removes }) => (
            <Row key={jobId} name={jobName}>
              <RowTitle>
                <Link to="/jobs/$jobId" params={{ jobId }} className="plain-link">
                  {jobName}
                </Link>
              </RowTitle>
              <Cell label="Project">{project}</Cell>
              <Cell label="Ended">
                <Moment at={endedAt} />
              </Cell>
              <Cell label="What would go">
                {removes.map((part) => `${RETENTION_WORDS[part.kind]}: ${removedWords(part)}`).join("; ")}
              </Cell>
            </Row>
          ))}
        </Body>
      </Table>
      {nextCursor !== null && <Text size="sm">There are more jobs than these.</Text>}
      {!isWhole && <Text size="sm">There is more than this: to look at all of it took too long.</Text>}
      {remarks.map((remark) => (
        <Text key={remark} size="sm">
          {sentence(remark)}
        </Text>
      ))}
    </>
  );
}

function Settings({ retention: { settings, lastRun }, mayEdit }: { retention: Retention; mayEdit: boolean }) {
  const { client } = useSession();
  const queries = useQueryClient();
  // Only while somebody changes them: what others set meanwhile is shown otherwise.
  const [changed, setChanged] = useState<Fields>();
  const fields = changed ?? fieldsOf(settings);
  const asked = settingsOf(fields);
  const preview = useMutation({
    mutationFn: () => {
      const days = RETENTION_KINDS.map((kind) => [kind, String(asked[kind] ?? "forever")]);
      return client.retention.preview(Object.fromEntries(days) as Record<RetentionKind, string>);
    },
  });
  const refresh = (): Promise<void> => queries.invalidateQueries({ queryKey: ["retention"] });
  const save = useMutation({
    mutationFn: () => client.retention.change(asked),
    onSuccess: async () => {
      await refresh();
      setChanged(undefined);
    },
  });
  const error = save.error ?? preview.error;
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        save.mutate();
      }}
    >
      <KindsTable
        settings={settings}
        fields={mayEdit ? fields : undefined}
        onField={(kind, days) => {
          setChanged({ ...fields, [kind]: days });
          preview.reset();
          save.reset();
        }}
        preview={preview.data}
        removed={lastRun?.removed}
      />
      {mayEdit && (
        <Group mt="md">
          <Button variant="default" loading={preview.isPending} onClick={() => preview.mutate()}>
            Preview
          </Button>
          <Button type="submit" loading={save.isPending} disabled={areAlike(asked, settings)}>
            Save
          </Button>
          {!areAlike(settings, KEEP_FOR_EVER) && (
            <ConfirmedButton
              label="Remove what is due…"
              name="now"
              question="Remove what is due now?"
              consequence="It goes by the days that are saved, on every project's ended jobs. There is no way back but your own backup."
              keep="Keep it"
              confirm="Remove it"
              onConfirm={() => client.retention.run().then(refresh)}
            />
          )}
        </Group>
      )}
      {error && (
        <Alert color="red" mt="sm" role="alert">
          {error.message}
        </Alert>
      )}
      {lastRun !== undefined && (
        <Text size="sm" mt="md">
          {sentence(`Retention: ${retentionRunWords(lastRun)}`)}{" "}
          {lastRun?.remarks.map((remark) => sentence(remark)).join(" ")}
        </Text>
      )}
      {preview.data && <PreviewTable preview={preview.data} />}
    </form>
  );
}

/** For how long the installation keeps what ended jobs leave. */
export function RetentionPage() {
  const session = useSession();
  const query = useRetention();
  return (
    <Page
      title="Retention"
      lead="How long ended jobs keep what they leave: days after a job's end, or for ever."
    >
      <Listed query={query} what="settings" isEmpty={query.data === undefined} empty={null}>
        {query.data && (
          <Settings
            retention={query.data}
            mayEdit={mayActAs(session, "admin") && isOfInstallation(session)}
          />
        )}
      </Listed>
    </Page>
  );
}
