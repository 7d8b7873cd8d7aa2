import { allPages, type InternEvoClient } from "@internevo/client";
import type { AuditFilter, AuditRecord } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import { Option, type Command } from "commander";
import { instantArgument, integerArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { jobId, profileId, tokenId, workloadId } from "../resolve.ts";
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

const TARGETS = [jobId, workloadId, profileId, tokenId];

/** What people name as elsewhere, by its id, the beginning of it, or its name; undefined where nothing is called so. */
async function namedTarget(
  client: InternEvoClient,
  text: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  for (const idOf of TARGETS) {
    try {
      return await idOf(client, text, signal);
    } catch (error) {
      // A shipped profile is no stored one: `conflict`.
      if (!(error instanceof ProblemError && ["not-found", "conflict"].includes(error.code))) throw error;
    }
  }
  return undefined;
}

/** Nothing is known of a target that nothing is called by: an empty list would say that nothing was done to it. */
const unknownTarget = (text: string): ProblemError =>
  new ProblemError("not-found", `no job, workload, profile or token is called ${text}`, [
    {
      field: "--target",
      value: text,
      message: "names nothing that is there, or that anything was done to",
      remedy: "give the whole id of what is gone, or leave --target out and look for it",
    },
  ]);

/** The newest first, as many as are asked for. */
async function recordsOf(
  client: InternEvoClient,
  options: AuditOptions,
  signal: AbortSignal,
): Promise<AuditRecord[]> {
  const rows: AuditRecord[] = [];
  const pages = allPages((cursor) =>
    client.listAudit({
      ...filterOf(options),
      limit: Math.min(200, options.limit),
      signal,
      ...(cursor === undefined ? {} : { cursor }),
    }),
  );
  for await (const row of pages) {
    rows.push(row);
    if (rows.length >= options.limit) break;
  }
  return rows;
}

export function addAudit(program: Command, context: Context): void {
  program
    .command("audit")
    .description("who did what to which object, newest first; needs a token of role admin")
    .option("--actor <name>", "only what this token did")
    .option(
      "--target <id>",
      "only what was done to this job, token, profile or workload: its id, the beginning of it, or its name",
    )
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
      const { target } = options;
      // What is written in the log comes first: projects and settings are in it by their names.
      let rows = await recordsOf(client, options, context.signal);
      if (target !== undefined && rows.length === 0) {
        const named = await namedTarget(client, target, context.signal);
        if (named === undefined) throw unknownTarget(target);
        rows = await recordsOf(client, { ...options, target: named }, context.signal);
      }
      if (output.json) output.document(rows);
      else if (rows.length === 0) output.note("nothing was done that matches");
      else output.data(auditTable(rows, output.colors));
    });
}
