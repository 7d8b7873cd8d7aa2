import {
  DELIVERY_STATES,
  EVENT_TYPES,
  isEventType,
  type DeliveryState,
  type EventType,
  type WebhookDelivery,
} from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import { InvalidArgumentError, Option, type Command } from "commander";
import { integerArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { addList } from "../lists.ts";
import { webhookId } from "../resolve.ts";
import { deliveriesTable, resultOf, webhooksTable, webhookText } from "../webhook-view.ts";

const ALL = "all";
type Events = EventType[] | typeof ALL;
/** Types of events, or all of them. */
function eventsArgument(text: string): Events {
  if (text.trim() === ALL) return ALL;
  return text.split(",").map((part) => {
    const type = part.trim();
    if (isEventType(type)) return type;
    throw new InvalidArgumentError(`${type} is no event; give ${ALL}, or some of ${EVENT_TYPES.join(", ")}.`);
  });
}

/** As the API says it. */
const filterOf = (events: Events): EventType[] | null => (events === ALL ? null : events);

const NAMED = "name of the webhook, its id or the beginning of it";
const TEST_SECONDS = 60;
const LOOK_MILLISECONDS = 500;

export function addWebhook(program: Command, context: Context): void {
  const group = program
    .command("webhook")
    .description("receivers of a project's events; needs a token of role admin");
  addList(group, context, {
    description: "list webhooks, newest first, without their secrets",
    list: (client, query) => client.listWebhooks(query),
    none: "no webhooks",
    table: webhooksTable,
  });
  addChanges(group, context);
  addShowing(group, context);
  addSending(group, context);
}

interface Made {
  readonly events?: Events;
  readonly project?: string;
}

function addChanges(group: Command, context: Context): void {
  const warn = (warnings: readonly string[]): void => warnings.forEach((each) => context.output().note(each));
  group
    .command("add")
    .description("create a webhook; standard output shows its secret this once")
    .argument("<name>", "what to call it")
    .argument("<url>", "where events are sent, e.g. https://ci.example.org/events")
    .option("--events <types>", `e.g. job.transitioned,trial.ended; default: ${ALL}`, eventsArgument)
    .option("--project <name>", "whose events; default: the token's project, else default")
    .action(async (name: string, url: string, { events = ALL, project }: Made) => {
      const client = await context.client();
      const made = await client.createWebhook(
        { name, url, events: filterOf(events), ...(project === undefined ? {} : { project }) },
        { signal: context.signal },
      );
      const output = context.output();
      if (output.json) return output.document(made);
      output.data(made.secret);
      warn(made.warnings);
      output.note(
        `webhook ${made.name} of project ${made.project} (${made.id}). The secret signs every delivery and cannot be shown again.`,
      );
    });
  group
    .command("set")
    .description("change a webhook; what is left out stays as it is")
    .argument("<webhook>", NAMED)
    .option("--to <url>", "where events are sent")
    .option("--events <types>", `types of events, or ${ALL}`, eventsArgument)
    .option("--enable", "send events again")
    .addOption(new Option("--disable", "send nothing, also not what waits").conflicts("enable"))
    .action(async (text: string, options: Made & { to?: string; enable?: true; disable?: true }) => {
      const { to, events, enable, disable } = options;
      const client = await context.client();
      const id = await webhookId(client, text, context.signal);
      const { warnings, ...webhook } = await client.changeWebhook(
        id,
        {
          ...(to === undefined ? {} : { url: to }),
          ...(events === undefined ? {} : { events: filterOf(events) }),
          ...(enable || disable ? { enabled: enable === true } : {}),
        },
        { signal: context.signal },
      );
      const output = context.output();
      if (output.json) return output.document({ ...webhook, warnings });
      output.data(webhookText(webhook));
      warn(warnings);
    });
  group
    .command("remove")
    .description("remove a webhook with its deliveries")
    .argument("<webhook>", NAMED)
    .action(async (text: string) => {
      const client = await context.client();
      const id = await webhookId(client, text, context.signal);
      await client.removeWebhook(id, { signal: context.signal });
      const output = context.output();
      if (output.json) output.document({ removed: id });
      else output.data(`webhook ${text} is removed${text === id ? "" : ` (${id})`}`);
    });
}

function addShowing(group: Command, context: Context): void {
  group
    .command("show")
    .description("one webhook: where it sends what, and whether that works")
    .argument("<webhook>", NAMED)
    .action(async (text: string) => {
      const client = await context.client();
      const webhook = await client.getWebhook(await webhookId(client, text, context.signal), {
        signal: context.signal,
      });
      const output = context.output();
      if (output.json) output.document(webhook);
      else output.data(webhookText(webhook));
    });
  group
    .command("deliveries")
    .description("what was sent and what came of it, newest first")
    .argument("<webhook>", NAMED)
    .addOption(new Option("--state <state>", "only these").choices(DELIVERY_STATES))
    .option("-n, --lines <count>", "so many at most; default: 20", integerArgument(1, 200), 20)
    .action(async (text: string, { state, lines }: { state?: DeliveryState; lines: number }) => {
      const client = await context.client();
      const id = await webhookId(client, text, context.signal);
      const { items } = await client.listDeliveries(id, {
        limit: lines,
        signal: context.signal,
        ...(state === undefined ? {} : { state }),
      });
      const output = context.output();
      if (output.json) output.document(items);
      else if (items.length === 0) output.note("no deliveries");
      else output.data(deliveriesTable(items, output.colors));
    });
}

function addSending(group: Command, context: Context): void {
  group
    .command("replay")
    .description("send a delivery that has ended again, with the same id")
    .argument("<delivery>", "id of the delivery")
    .action(async (id: string) => {
      const client = await context.client();
      const delivery = await client.replayDelivery(id, { signal: context.signal });
      const output = context.output();
      if (output.json) output.document(delivery);
      else output.data(`delivery ${delivery.id} is sent again`);
    });
  group
    .command("test")
    .description("send a test event, and say what the receiver answered; status 1 when it did not take it")
    .argument("<webhook>", NAMED)
    .action(async (text: string) => {
      const client = await context.client();
      const id = await webhookId(client, text, context.signal);
      const { id: deliveryId } = await client.testWebhook(id, { signal: context.signal });
      const deadline = performance.now() + 1000 * TEST_SECONDS;
      let delivery: WebhookDelivery;
      do {
        await new Promise((resolve) => setTimeout(resolve, LOOK_MILLISECONDS));
        context.signal.throwIfAborted();
        delivery = await client.getDelivery(deliveryId, { signal: context.signal });
      } while (delivery.log.length === 0 && performance.now() < deadline);
      if (delivery.log.length === 0)
        throw new ProblemError("unavailable", `nobody has sent the test within ${TEST_SECONDS} s`, [
          { field: "webhook", value: text, message: "waits", remedy: "see whether a replanner runs" },
        ]);
      if (delivery.state !== "succeeded") context.setExitCode(EXIT.failed);
      const output = context.output();
      if (output.json) output.document(delivery);
      else output.data(`${delivery.state === "succeeded" ? "taken" : "not taken"}: ${resultOf(delivery)}`);
    });
}
