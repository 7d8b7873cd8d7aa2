import type { Webhook, WebhookDelivery } from "@internevo/contracts";
import { Alert, Button, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { ConfirmedButton } from "../components/confirmed-button.tsx";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../components/data-table.tsx";
import { LinkTo } from "../components/links.tsx";
import { MoreButton } from "../components/more-button.tsx";
import { Moment } from "../components/moment.tsx";
import { Facts, Page, Section } from "../components/page.tsx";
import { Badge } from "../components/state-badge.tsx";
import { Empty, Failed, Listed, Loading } from "../components/states.tsx";
import { WebhookBadge } from "../components/webhook-badge.tsx";
import { useDeliveries, useWebhook } from "../data/queries.ts";
import { useSession } from "../session/session.tsx";
import { formatSeconds } from "../text/format.ts";

const route = getRouteApi("/webhooks/$webhookId");
const back = (
  <LinkTo to="/webhooks" size="sm">
    ← Webhooks
  </LinkTo>
);

/** What people do with a webhook. */
function Actions({ webhook }: { webhook: Webhook }) {
  const { client } = useSession();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const again = () => queries.invalidateQueries({ queryKey: ["webhooks"] });
  const test = useMutation({ mutationFn: () => client.testWebhook(webhook.id), onSuccess: again });
  const change = useMutation({
    mutationFn: () => client.changeWebhook(webhook.id, { enabled: !webhook.enabled }),
    onSuccess: again,
  });
  const refused = test.error ?? change.error;
  return (
    <>
      <Button
        size="compact-sm"
        disabled={!webhook.enabled}
        loading={test.isPending}
        onClick={() => test.mutate()}
      >
        Send a test event
      </Button>
      <Button size="compact-sm" variant="default" loading={change.isPending} onClick={() => change.mutate()}>
        {webhook.enabled ? "Disable" : "Enable"}
      </Button>
      <ConfirmedButton
        label="Remove"
        name={webhook.name}
        question={`Remove ${webhook.name}?`}
        consequence="Nothing is sent to it any more, and its deliveries are forgotten."
        keep="Keep it"
        confirm="Remove the webhook"
        onConfirm={async () => {
          await client.removeWebhook(webhook.id);
          await navigate({ to: "/webhooks" });
        }}
      />
      {refused && (
        <Alert color="red" role="alert">
          {refused.message}
        </Alert>
      )}
    </>
  );
}

const STATE_TONES = { pending: "waiting", succeeded: "good", failed: "bad" } as const;
const STATE_WORDS = { pending: "On its way", succeeded: "Delivered", failed: "Given up" } as const;

function DeliveryRow({ delivery }: { delivery: WebhookDelivery }) {
  const { client } = useSession();
  const queries = useQueryClient();
  const replay = useMutation({
    mutationFn: () => client.replayDelivery(delivery.id),
    onSettled: () => queries.invalidateQueries({ queryKey: ["webhooks", delivery.webhookId] }),
  });
  const last = delivery.log.at(-1);
  return (
    <Row name={delivery.id}>
      <RowTitle>{delivery.eventType}</RowTitle>
      <Cell label="State">
        <Badge tone={STATE_TONES[delivery.state]}>{STATE_WORDS[delivery.state]}</Badge>
      </Cell>
      <Cell label="Created">
        <Moment at={delivery.createdAt} both />
      </Cell>
      <Cell label="Attempts" numeric>
        {delivery.attempts}
      </Cell>
      <Cell label="Last answer">
        {last && (
          <>
            {last.error ?? `answered ${last.status}`}{" "}
            <span className="cell-note-inline">after {formatSeconds(last.durationSeconds)}</span>
          </>
        )}
      </Cell>
      <Cell label="Next attempt">
        {delivery.nextAttemptAt === null ? undefined : <Moment at={delivery.nextAttemptAt} both />}
      </Cell>
      <Cell label="">
        {delivery.state !== "pending" && (
          <Button
            size="compact-sm"
            variant="default"
            loading={replay.isPending}
            onClick={() => replay.mutate()}
            aria-label={`Replay ${delivery.eventType}`}
          >
            Replay
          </Button>
        )}
        {replay.isError && (
          <Text size="sm" role="alert">
            {replay.error.message}
          </Text>
        )}
      </Cell>
    </Row>
  );
}

function Deliveries({ id }: { id: string }) {
  const query = useDeliveries(id);
  const deliveries = query.data?.pages.flatMap(({ items }) => items) ?? [];
  return (
    <Listed
      query={query}
      what="deliveries"
      isEmpty={deliveries.length === 0}
      empty={<Empty title="No deliveries">Send a test event to try it.</Empty>}
    >
      <Table label="Deliveries" narrow="cards">
        <Head>
          <Row>
            <Column>Event</Column>
            <Column>State</Column>
            <Column>Created</Column>
            <Column numeric>Attempts</Column>
            <Column>Last answer</Column>
            <Column>Next attempt</Column>
            <Column>
              <span className="visually-hidden">Actions</span>
            </Column>
          </Row>
        </Head>
        <Body>
          {deliveries.map((delivery) => (
            <DeliveryRow key={delivery.id} delivery={delivery} />
          ))}
        </Body>
      </Table>
      <MoreButton query={query} />
    </Listed>
  );
}

export function WebhookPage() {
  const { webhookId } = route.useParams();
  const query = useWebhook(webhookId);
  if (query.isPending) return <Loading label="webhook" />;
  if (query.error)
    return (
      <Page title="Webhook" above={back}>
        <Failed what="webhook" error={query.error} onRetry={() => void query.refetch()} />
      </Page>
    );
  const webhook = query.data;
  const { name, project, url, events, disabledReason, failingSince, pending } = webhook;
  return (
    <Page title={name} lead={url} above={back} actions={<Actions webhook={webhook} />}>
      {disabledReason !== null && (
        <Alert color="yellow" title="Disabled" role="status">
          {disabledReason}
        </Alert>
      )}
      <Facts
        items={[
          { name: "State", value: <WebhookBadge webhook={webhook} /> },
          { name: "Project", value: project },
          { name: "Waiting", value: pending },
          { name: "Events", value: events === null ? "all" : events.join(", "), wide: true },
          ...(failingSince === null
            ? []
            : [{ name: "Failing since", value: <Moment at={failingSince} both /> }]),
        ]}
      />
      <Section title="Deliveries">
        <Deliveries id={webhookId} />
      </Section>
    </Page>
  );
}
