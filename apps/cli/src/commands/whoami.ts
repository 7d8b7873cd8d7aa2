import type { Command } from "commander";
import type { Context } from "../context.ts";

export function addWhoami(program: Command, context: Context): void {
  program
    .command("whoami")
    .description("whose token is used, and its role")
    .action(async () => {
      const output = context.output();
      const owner = await (await context.client()).whoami({ signal: context.signal });
      if (output.json) output.document(owner);
      else
        output.data(
          `${owner.name} ${owner.role}${owner.project === null ? "" : ` in project ${owner.project}`}`,
        );
    });
}
