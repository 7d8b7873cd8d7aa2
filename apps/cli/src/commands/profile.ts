import { existsSync } from "node:fs";
import type { InternEvoClient, ProfileSummary } from "@internevo/client";
import type { JobDetail } from "@internevo/contracts";
import { findShippedProfile } from "@internevo/cost-model";
import { measuringName } from "@internevo/domain";
import type { Command } from "commander";
import type { Context } from "../context.ts";
import { exitCodeOfState } from "../exit-codes.ts";
import { readJobFile } from "../job-input.ts";
import { addList, pages } from "../lists.ts";
import { createProgress, followJob } from "../progress.ts";
import { profileId } from "../resolve.ts";
import { addProfileFiles } from "./profile-files.ts";
import { addProfileKit } from "./profile-kit.ts";
import { discardedWords, jobText, profilesTable, profileText, shippedProfileText } from "../views.ts";

export function addProfile(program: Command, context: Context): void {
  const profile = program.command("profile").description("what was measured of the clusters");
  addList(profile, context, {
    description: "list stored profiles, newest first, and those that are shipped",
    list: (client, query) => client.listProfiles(query),
    none: "no profiles yet: the first job of a cluster makes one",
    table: profilesTable,
    showsNone: true,
  });
  addShow(profile, context);
  profile
    .command("discard")
    .description(
      "take a profile out of use: jobs that used it still show it; after its newest, the next job measures a cluster",
    )
    .argument(
      "<profile>",
      "id of the profile, the beginning of it, its name, or its cluster's, of which it is the newest",
    )
    .action(async (text: string) => {
      const output = context.output();
      const client = await context.client();
      const id = await profileId(client, text, context.signal);
      const discarded = await client.getProfile(id, { signal: context.signal });
      await client.discardProfile(id, { signal: context.signal });
      if (output.json) return output.document({ id, discarded: true });
      const left: ProfileSummary[] = [];
      for await (const one of pages((cursor) =>
        client.listProfiles({ limit: 200, signal: context.signal, ...cursor }),
      ))
        if (one.clusterKey === discarded.clusterKey) left.push(one);
      output.data(
        `profile ${text} is discarded${text === id ? "" : ` (${id})`}: ${discardedWords(discarded, left)}`,
      );
    });
  profile
    .command("measure")
    .description(
      "measure a cluster again, whether its profile is fresh or not, without training; waits until it is measured",
    )
    .argument(
      "<what>",
      "a job file, whose shapes are measured; or a profile, by its id, the " +
        "beginning of it, its name or its cluster's: what its newest job needed",
    )
    .action(async (what: string) => {
      const output = context.output();
      const client = await context.client();
      const submitted = await submitMeasurement(client, what, context.signal);
      output.note(`job ${submitted.id} ${submitted.name}`);
      const progress = createProgress({ output, steps: submitted.steps });
      try {
        await followJob(client, submitted.id, progress.on, output, context.signal);
      } finally {
        progress.end();
        if (context.signal.aborted)
          output.note(`job ${submitted.id} goes on; cancel it with: internevo cancel ${submitted.id}`);
      }
      const job = await client.getJob(submitted.id, { signal: context.signal });
      context.setExitCode(exitCodeOfState(job.state));
      if (job.state !== "succeeded" || job.profileId === null)
        return output.json ? output.document(job) : output.data(jobText(job, output.colors));
      const record = await client.getProfile(job.profileId, { signal: context.signal });
      if (output.json) output.document(record.profile);
      else output.data(profileText(record, output.colors));
    });
  addProfileFiles(profile, context);
  addProfileKit(profile, context);
}

function addShow(profile: Command, context: Context): void {
  profile
    .command("show")
    .description("show one profile; with --json the whole document, which `plan --profile` reads")
    .argument(
      "<profile>",
      "id of the profile, the beginning of it, its name, or its cluster's, of which it is the newest; or a shipped one",
    )
    .action(async (text: string) => {
      const output = context.output();
      const shipped = findShippedProfile(text);
      if (shipped) {
        if (output.json) output.document(shipped);
        else output.data(shippedProfileText(text, shipped, output.colors));
        return;
      }
      const client = await context.client();
      const record = await client.getProfile(await profileId(client, text, context.signal), {
        signal: context.signal,
      });
      if (output.json) output.document(record.profile);
      else output.data(profileText(record, output.colors));
    });
}

/** A job that names a profile measures nothing, which is not what is asked for here. */
function withoutProfile(document: unknown): Record<string, unknown> {
  const file = document as Record<string, unknown>;
  const { cluster } = file;
  if (typeof cluster !== "object" || cluster === null) return file;
  const { profile: _named, ...own } = cluster as Record<string, unknown>;
  return { ...file, cluster: own };
}

/** A job that only measures: of a job file where there is one of that name, else of a stored profile. */
async function submitMeasurement(
  client: InternEvoClient,
  what: string,
  signal: AbortSignal,
): Promise<JobDetail> {
  if (what !== "-" && !existsSync(what))
    return client.measureProfile(await profileId(client, what, signal), { signal });
  const file = withoutProfile(await readJobFile(what));
  // The job of the file keeps its name for itself: others are told by it which one is meant.
  const name = typeof file["name"] === "string" ? { name: measuringName(file["name"]) } : {};
  return client.submitJob({ ...file, ...name, measureAgain: true, until: "profiling" }, { signal });
}
