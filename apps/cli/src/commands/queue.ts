import type { QueueSettingsChange } from "@internevo/contracts";
import { formatCounted, formatSpan, type QueueSettings } from "@internevo/domain";
import type { Command } from "commander";
import { durationArgument, spanArgument } from "../arguments.ts";
import type { Context } from "../context.ts";

interface Change {
  readonly halfLife?: number;
  readonly patience?: number;
  readonly leastRun?: number;
}

const hoursOf = (seconds: number): number => seconds / 3600;
const changeOf = ({ halfLife, patience, leastRun }: Change): QueueSettingsChange => ({
  ...(halfLife === undefined ? {} : { halfLifeHours: hoursOf(halfLife) }),
  ...(patience === undefined ? {} : { patienceHours: hoursOf(patience) }),
  ...(leastRun === undefined ? {} : { leastRunMinutes: leastRun / 60 }),
});

const settingsWords = ({ halfLifeHours, patienceHours, leastRunMinutes }: QueueSettings): string =>
  [
    `usage counts half for the fair share after ${formatCounted(halfLifeHours, "hour")}`,
    `who has waited for ${formatCounted(patienceHours, "hour")} goes first`,
    leastRunMinutes === 0
      ? "a preemptible job gives way at once"
      : `a preemptible job gives way after ${formatSpan(60_000 * leastRunMinutes)} at the earliest`,
  ].join("; ");

export function addQueue(program: Command, context: Context): void {
  const group = program
    .command("queue")
    .description("how the queue for hosts shares them out among projects; internevo cluster shows who waits");
  const show = (settings: QueueSettings): void => {
    const output = context.output();
    if (output.json) output.document(settings);
    else output.data(settingsWords(settings));
  };
  group
    .command("show", { isDefault: true })
    .description("show the settings")
    .action(async () => show(await (await context.client()).queueSettings({ signal: context.signal })));
  group
    .command("set")
    .description("change the settings; needs an admin of the installation")
    .option(
      "--half-life <duration>",
      "after it GPU time that a project used counts half, e.g. 7d",
      durationArgument,
    )
    .option(
      "--patience <duration>",
      "who has waited for so long goes first, whatever its priority and project, e.g. 14d",
      durationArgument,
    )
    .option(
      "--least-run <duration>",
      "for so long a preemptible job keeps its hosts before it gives way to another, e.g. 10m, or 0",
      spanArgument,
    )
    .action(async (options: Change) => {
      const client = await context.client();
      show(await client.changeQueueSettings(changeOf(options), { signal: context.signal }));
    });
}
