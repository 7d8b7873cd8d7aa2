import { allPages, type ProfileSummary } from "@internevo/client";
import type { Command } from "commander";
import { addList } from "../arguments.ts";
import type { Context } from "../context.ts";
import { profileId } from "../resolve.ts";
import { addProfileFiles } from "./profile-files.ts";
import { profilesTable, profileText } from "../views.ts";

export function addProfile(program: Command, context: Context): void {
  const profile = program.command("profile").description("what was measured of the clusters");
  addList(profile, "list stored profiles, newest first", async () => {
    const output = context.output();
    const client = await context.client();
    const profiles: ProfileSummary[] = [];
    for await (const item of allPages((cursor) => client.listProfiles({ signal: context.signal, ...(cursor === undefined ? {} : { cursor }) }))) profiles.push(item);
    if (output.json) output.document(profiles);
    else if (profiles.length === 0) output.note("no profiles yet: the first job of a cluster makes one");
    else output.data(profilesTable(profiles, output.colors));
  });
  profile
    .command("show")
    .description("show one profile; with --json the whole document, which `plan --profile` reads")
    .argument("<profile>", "id of the profile, the beginning of it, its name, or its cluster's, of which it is the newest")
    .action(async (text: string) => {
      const output = context.output();
      const client = await context.client();
      const record = await client.getProfile(await profileId(client, text, context.signal), { signal: context.signal });
      if (output.json) output.document(record.profile);
      else output.data(profileText(record, output.colors));
    });
  addProfileFiles(profile, context);
}
