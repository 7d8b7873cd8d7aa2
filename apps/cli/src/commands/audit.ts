import { allPages } from "@internevo/client";
import type { AuditFilter, AuditRecord } from "@internevo/contracts";
import { Option, type Command } from "commander";
import { instantArgument, integerArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { auditTable } from "../views.ts";

interface AuditOptions {
  readonly actor?: string;
  readonly target?: string;
  readonly action?: string;
  readonly project?: string;
  readonly refused?: boolean;
  readonly since?: string;
  readonly until?: string;
  readonly limit: number;
}

const filterOf = ({ actor, target, action, project, refused, since, until }: AuditOptions): AuditFilter => ({
  ...(actor === undefined ? {} : { actor }),
  ...(target === undefined ? {} : { target }),
  ...(action === undefined ? {} : { action }),
  ...(project === undefined ? {} : { project }),
  ...(refused === true ? { outcome: "refused" as const } : {}),
  ...(since === undefined ? {} : { from: since }),
  ...(until === undefined ? {} : { until }),
});

export function addAudit(program: Command, context: Context): void {
  program
    .command("audit")
    .description("who did what to which object, newest first; needs a token of role admin")
    .option("--actor <name>", "only what this token did")
    .option("--target <id>", "only what was done to this job, token, profile or workload")
    .option("--action <text>", "only actions with this text in them, e.g. cancel")
    .option("--project <name>", "only what was about this project")
    .option("--refused", "only what was refused")
    .addOption(
      new Option("--since <instant>", "only since then, e.g. 7d or 2026-01-31T12:00Z").argParser(
        instantArgument,
      ),
    )
    .addOption(new Option("--until <instant>", "only before then").argParser(instantArgument))
    .option("-n, --limit <count>", "at most so many", integerArgument(1, 100_000), 50)
    .action(async (options: AuditOptions) => {
      const output = context.output();
      const client = await context.client();
      const rows: AuditRecord[] = [];
      const pages = allPages((cursor) =>
        client.listAudit({
          ...filterOf(options),
          limit: Math.min(200, options.limit),
          signal: context.signal,
          ...(cursor === undefined ? {} : { cursor }),
        }),
      );
      for await (const row of pages) {
        rows.push(row);
        if (rows.length >= options.limit) break;
      }
      if (output.json) output.document(rows);
      else if (rows.length === 0) output.note("nothing was done that matches");
      else output.data(auditTable(rows, output.colors));
    });
}
