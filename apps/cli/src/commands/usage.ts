import { USAGE_GROUPS, usageCsv, type UsageGroup, type UsageQuery } from "@internevo/contracts";
import { formatGpuHours, formatMoment } from "@internevo/domain";
import { Option, type Command } from "commander";
import { instantArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { usageTable } from "../project-view.ts";

interface Options {
  readonly by: UsageGroup;
  readonly from?: string;
  readonly to?: string;
  readonly project?: string;
  readonly csv?: boolean;
}

export function addUsage(program: Command, context: Context): void {
  program
    .command("usage")
    .description("GPU-hours that jobs held: GPUs times the time that they had their hosts")
    .addOption(new Option("--by <what>", "a row for each").choices(USAGE_GROUPS).default("project"))
    .addOption(
      new Option(
        "--from <instant>",
        "since then, e.g. 7d or 2026-01-31; default: this month (UTC)",
      ).argParser(instantArgument),
    )
    .addOption(new Option("--to <instant>", "before then; default: now").argParser(instantArgument))
    .option("--project <name>", "only of this project")
    .option("--csv", "as CSV")
    .action(async ({ by, from, to, project, csv = false }: Options) => {
      const output = context.output();
      const client = await context.client();
      const query: UsageQuery = {
        by,
        ...(from === undefined ? {} : { from }),
        ...(to === undefined ? {} : { to }),
        ...(project === undefined ? {} : { project }),
      };
      const usage = await client.usage(query, { signal: context.signal });
      if (output.json) return output.document(usage);
      if (csv) return output.data(usageCsv(usage).replaceAll("\r\n", "\n").trimEnd());
      const span = `from ${formatMoment(usage.from)} to ${formatMoment(usage.to)}`;
      if (usage.rows.length === 0) return output.note(`no job held hosts ${span}`);
      output.data(usageTable(usage, output.colors));
      output.note(`${formatGpuHours(usage.gpuHours)} GPU-hours ${span}`);
    });
}
