import type { Artifact } from "@internevo/contracts";
import { formatBytes, formatMoment, lowered, removalWords, RETENTION_WORDS } from "@internevo/domain";
import type { Command } from "commander";
import type { Context } from "../context.ts";
import { table, type Colors } from "../output.ts";
import { jobId } from "../resolve.ts";
import { saveBody, savedPath } from "../saved-file.ts";
import { JOB_ARGUMENT } from "./jobs.ts";

const NONE = "–";

const artifactsTable = (artifacts: readonly Artifact[], colors: Colors): string =>
  table<Artifact>(
    [
      { title: "NAME", value: ({ name }) => name },
      { title: "KIND", value: ({ kind }) => kind },
      { title: "SIZE", align: "right", value: ({ bytes }) => (bytes === null ? NONE : formatBytes(bytes)) },
      {
        title: "MODIFIED",
        value: ({ modifiedAt }) => (modifiedAt === null ? NONE : formatMoment(modifiedAt)),
      },
    ],
    artifacts,
    colors,
  );

function addArtifactList(group: Command, context: Context): void {
  group
    .command("list", { isDefault: true })
    .description("what a job leaves: its file, metrics as CSV, log, timelines, checkpoints, exports")
    .argument("<job>", JOB_ARGUMENT)
    .action(async (text: string) => {
      const output = context.output();
      const client = await context.client();
      const id = await jobId(client, text, context.signal);
      const { items, absent, removed } = await client.listArtifacts(id, { signal: context.signal });
      if (output.json) output.document({ items, absent, removed });
      else output.data(artifactsTable(items, output.colors));
      for (const removal of removed)
        output.note(`${lowered(RETENTION_WORDS[removal.kind])}: ${removalWords(removal)}`);
      if (absent !== null) output.note(`not listed are files of its ranks: ${absent}`);
    });
}

function addArtifactGet(group: Command, context: Context): void {
  group
    .command("get")
    .description("download one of them; a folder, such as a checkpoint, is a tar archive")
    .argument("<job>", JOB_ARGUMENT)
    .argument("<name>", "as the list has it, e.g. steps.csv or checkpoint-step-100.tar")
    .option("--out <path>", "the file, or a folder for it; default: its name, here")
    .action(async (text: string, name: string, { out }: { readonly out?: string }) => {
      const output = context.output();
      const path = savedPath(out, name);
      const client = await context.client();
      const id = await jobId(client, text, context.signal);
      const response = await client.openArtifact(id, name, { signal: context.signal });
      const length = response.headers.get("content-length");
      const whole = length === null ? "" : ` of ${formatBytes(Number(length))}`;
      const bytes = await saveBody(response, path, {
        signal: context.signal,
        onBytes: (done) => output.status(`${name} ${formatBytes(done)}${whole}`),
      });
      output.status("");
      if (output.json) output.document({ written: path, bytes });
      else output.note(`written: ${path}, ${formatBytes(bytes)}`);
    });
}

export function addArtifacts(program: Command, context: Context): void {
  const group = program.command("artifacts").description("list and download what a job leaves");
  addArtifactGet(group, context);
  addArtifactList(group, context);
}
