import { resolve } from "node:path";
import { formatBytes, formatCounted, formatMoment } from "@internevo/domain";
import type { Command } from "commander";
import type { Context } from "../context.ts";
import { dataDirectoryOf } from "../context.ts";
import type { Output } from "../output.ts";

/** Says what is done now, and how far it is. */
const progress =
  (output: Output, verb: string) =>
  (what: string, doneBytes?: number, allBytes?: number): void => {
    const far =
      doneBytes === undefined || allBytes === undefined
        ? ""
        : `, ${formatBytes(doneBytes)} of ${formatBytes(allBytes)}`;
    output.status(`${verb} ${what}${far}`);
  };

export function addBackup(program: Command, context: Context): void {
  program
    .command("backup")
    .description(
      "back up the local stack of a data directory, database and files of one moment; it may run meanwhile",
    )
    .argument("<to>", "the folder to make; it holds secrets, and only you can read it")
    .addHelpText(
      "after",
      "\nThe database is that of the stack which runs in the data directory, else that of DATABASE_URL,\n" +
        "else the data directory's own. `internevo restore` restores the backup.",
    )
    .action(async (to: string) => {
      const output = context.output();
      const { backUp, withDatabaseOf } = await import("@internevo/backup");
      const dataDirectory = resolve(dataDirectoryOf(context));
      const { signal } = context;
      const { takenAt, counts, warnings } = await withDatabaseOf(
        dataDirectory,
        context.env["DATABASE_URL"],
        signal,
        (databaseUrl) =>
          backUp({ to, dataDirectory, databaseUrl, signal, onProgress: progress(output, "backs up") }),
      );
      output.status("");
      for (const warning of warnings) output.note(`warning: ${warning}`);
      const path = resolve(to);
      if (output.json) output.document({ written: path, takenAt, counts, warnings });
      else
        output.note(
          `written: ${path}, ${formatBytes(counts.bytes)}: ${formatCounted(counts.jobs, "job")} and ` +
            `${formatCounted(counts.checkpoints, "checkpoint")} as of ${formatMoment(takenAt)}`,
        );
    });
}

const heldWords = (heldJobs: number, pausedWorkloads: number): string =>
  `${formatCounted(heldJobs, "job")} held and ${formatCounted(pausedWorkloads, "workload")} paused: ` +
  "`internevo resume` and `internevo replan resume` let them go on";

const disabledWords = (webhooks: number): string =>
  `${formatCounted(webhooks, "webhook")} disabled, so that ${webhooks === 1 ? "its receiver is" : "their receivers are"} told nothing: ` +
  "`internevo webhook set NAME --enable` has events sent again";

export function addRestore(program: Command, context: Context): void {
  program
    .command("restore")
    .description("restore a backup into a data directory, and a database, that have nothing in them")
    .argument("<from>", "the folder that `internevo backup` made")
    .option(
      "--go-on",
      "jobs that had not ended go on when the stack starts; otherwise they are held, workloads paused, and " +
        "webhooks disabled. " +
        "Only where the old stack never runs again: two would train the same jobs on the same hosts",
    )
    .addHelpText(
      "after",
      "\nThe data directory is the one of --data-directory. With DATABASE_URL the database is that one, which must be\n" +
        "empty; `internevo up` then needs the same.",
    )
    .action(async (from: string, { goOn }: { readonly goOn?: boolean }) => {
      const output = context.output();
      const { restore } = await import("@internevo/backup");
      const dataDirectory = resolve(dataDirectoryOf(context));
      const named = context.env["DATABASE_URL"];
      const { manifest, ...settled } = await restore({
        from,
        dataDirectory,
        databaseUrl: named === "" ? undefined : named,
        goesOn: goOn === true,
        signal: context.signal,
        onProgress: progress(output, "restores"),
      });
      output.status("");
      const { takenAt, counts, warnings } = manifest;
      for (const warning of warnings) output.note(`warning of the backup: ${warning}`);
      if (output.json) output.document({ dataDirectory, takenAt, counts, ...settled, warnings });
      else {
        const { heldJobs, pausedWorkloads, disabledWebhooks } = settled;
        output.note(
          `restored: ${dataDirectory}, ${formatCounted(counts.jobs, "job")} as of ${formatMoment(takenAt)}`,
        );
        if (heldJobs + pausedWorkloads > 0) output.note(heldWords(heldJobs, pausedWorkloads));
        if (disabledWebhooks > 0) output.note(disabledWords(disabledWebhooks));
        output.note(`\`internevo up --data-directory ${dataDirectory}\` starts it`);
      }
    });
}
