import type { Command } from "commander";
import type { Context } from "../context.ts";
import { addList } from "../lists.ts";
import { profileId } from "../resolve.ts";
import { addProfileFiles } from "./profile-files.ts";
import { profilesTable, profileText } from "../views.ts";

export function addProfile(program: Command, context: Context): void {
  const profile = program.command("profile").description("what was measured of the clusters");
  addList(profile, context, {
    description: "list stored profiles, newest first",
    list: (client, query) => client.listProfiles(query),
    none: "no profiles yet: the first job of a cluster makes one",
    table: profilesTable,
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
