import { EVENT_TYPES, EVENTS, type CreatedWebhook, type EventType, type Webhook } from "@internevo/contracts";
import { DEFAULT_PROJECT } from "@internevo/domain";
import { Alert, Button, Checkbox, Group, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Dialog } from "../components/dialog.tsx";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../components/data-table.tsx";
import { Moment } from "../components/moment.tsx";
import { MoreButton } from "../components/more-button.tsx";
import { Page } from "../components/page.tsx";
import { ProjectField } from "../components/project-field.tsx";
import { ShownOnce } from "../components/shown-once.tsx";
import { Empty, Listed } from "../components/states.tsx";
import { WebhookBadge } from "../components/webhook-badge.tsx";
import { useWebhooks } from "../data/queries.ts";
import { isOfInstallation, useSession } from "../session/session.tsx";

function EventsField({
  events,
  onChange,
}: {
  events: readonly EventType[];
  onChange: (events: readonly EventType[]) => void;
}) {
  return (
    <Checkbox.Group
      mt="sm"
      label="Events"
      description="Without any, all of them."
      value={[...events]}
      onChange={(chosen) => onChange(EVENT_TYPES.filter((type) => chosen.includes(type)))}
    >
      <Group gap="xs" mt={6}>
        {EVENT_TYPES.map((type) => (
          <Checkbox key={type} value={type} label={type} description={EVENTS[type].summary} size="xs" />
        ))}
      </Group>
    </Checkbox.Group>
  );
}

function CreateForm({ onMade, onClose }: { onMade: (made: CreatedWebhook) => void; onClose: () => void }) {
  const session = useSession();
  const queries = useQueryClient();
  const [name, setName] = useState("");
  const [url, setUrl] = useState("");
  const [events, setEvents] = useState<readonly EventType[]>([]);
  const [project, setProject] = useState<string>(DEFAULT_PROJECT);
  const create = useMutation({
    mutationFn: () =>
      session.client.createWebhook({
        name: name.trim(),
        url: url.trim(),
        events: events.length === 0 ? null : [...events],
        ...(isOfInstallation(session) ? { project } : {}),
      }),
    onSuccess: async (made) => {
      await queries.invalidateQueries({ queryKey: ["webhooks"] });
      onMade(made);
    },
  });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        create.mutate();
      }}
    >
      <TextInput
        label="Name"
        value={name}
        maxLength={100}
        onChange={(event) => setName(event.currentTarget.value)}
        data-autofocus
        required
      />
      <TextInput
        mt="sm"
        label="URL"
        description="Each event is sent there, signed."
        type="url"
        value={url}
        onChange={(event) => setUrl(event.currentTarget.value)}
        required
      />
      <EventsField events={events} onChange={setEvents} />
      {isOfInstallation(session) && (
        <ProjectField
          label="Project"
          description="Its events are sent, and no others."
          project={project}
          onChange={setProject}
        />
      )}
      {create.isError && (
        <Alert color="red" mt="sm" role="alert">
          {create.error.message}
        </Alert>
      )}
      <Group justify="flex-end" mt="md">
        <Button variant="default" onClick={onClose}>
          Close
        </Button>
        <Button type="submit" loading={create.isPending} disabled={name.trim() === "" || url.trim() === ""}>
          Create the webhook
        </Button>
      </Group>
    </form>
  );
}

function WebhookRow({ webhook }: { webhook: Webhook }) {
  return (
    <Row name={webhook.id}>
      <RowTitle>
        <Link to="/webhooks/$webhookId" params={{ webhookId: webhook.id }} className="plain-link">
          {webhook.name}
        </Link>
      </RowTitle>
      <Cell label="Project">{webhook.project}</Cell>
      <Cell label="URL" className="wrapped">
        {webhook.url}
      </Cell>
      <Cell label="Events">{webhook.events === null ? "all" : webhook.events.join(", ")}</Cell>
      <Cell label="State">
        <WebhookBadge webhook={webhook} />
      </Cell>
      <Cell label="Last success">
        {webhook.lastSuccessAt === null ? (
          <span className="nothing">never</span>
        ) : (
          <Moment at={webhook.lastSuccessAt} />
        )}
      </Cell>
      <Cell label="Waiting" numeric>
        {webhook.pending}
      </Cell>
    </Row>
  );
}

export function WebhooksPage() {
  const query = useWebhooks();
  const [opened, { open, close }] = useDisclosure();
  const [made, setMade] = useState<CreatedWebhook>();
  const webhooks = query.data?.pages.flatMap(({ items }) => items) ?? [];
  return (
    <Page
      title="Webhooks"
      lead="What happens in a project, sent to programs of yours."
      actions={<Button onClick={open}>Create a webhook</Button>}
    >
      {made && (
        <ShownOnce
          title={[`${made.name} is told of what happens in project ${made.project}.`, ...made.warnings].join(
            " ",
          )}
          what="secret"
          secret={made.secret}
          onClose={() => setMade(undefined)}
        />
      )}
      <Dialog opened={opened} onClose={close} title="Create a webhook">
        <CreateForm
          onMade={(webhook) => {
            setMade(webhook);
            close();
          }}
          onClose={close}
        />
      </Dialog>
      <Listed
        query={query}
        what="webhooks"
        isEmpty={webhooks.length === 0}
        empty={<Empty title="No webhooks">Nobody is told of what happens.</Empty>}
      >
        <Table label="Webhooks" narrow="cards">
          <Head>
            <Row>
              <Column>Name</Column>
              <Column>Project</Column>
              <Column>URL</Column>
              <Column>Events</Column>
              <Column>State</Column>
              <Column>Last success</Column>
              <Column numeric>Waiting</Column>
            </Row>
          </Head>
          <Body>
            {webhooks.map((webhook) => (
              <WebhookRow key={webhook.id} webhook={webhook} />
            ))}
          </Body>
        </Table>
        <MoreButton query={query} />
      </Listed>
    </Page>
  );
}
