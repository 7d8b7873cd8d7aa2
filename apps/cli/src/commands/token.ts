import { ROLES, type Role } from "@internevo/contracts";
import { formatMoment } from "@internevo/domain";
import { Option, type Command } from "commander";
import { durationArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { addList } from "../lists.ts";
import { tokenId } from "../resolve.ts";
import { tokensTable } from "../views.ts";

interface CreateOptions {
  readonly role: Role;
  readonly project?: string;
  readonly validFor?: number;
}

export function addToken(program: Command, context: Context): void {
  const token = program.command("token").description("who may use the API; needs a token of role admin");
  token
    .command("create")
    .description("create a token; standard output shows it this once")
    .argument("<name>", "who or what uses it: the audit log shows this name")
    .addOption(new Option("--role <role>", "what it may do").choices(ROLES).makeOptionMandatory())
    .option("--project <name>", "where it has its role; default: in the whole installation")
    .option(
      "--valid-for <duration>",
      "when it runs out, e.g. 12h or 30d; default: when it is revoked",
      durationArgument,
    )
    .action(async (name: string, { role, project, validFor }: CreateOptions) => {
      const client = await context.client();
      const made = await client.createToken(
        {
          name,
          role,
          ...(project === undefined ? {} : { project }),
          ...(validFor === undefined ? {} : { validForSeconds: Math.ceil(validFor) }),
        },
        { signal: context.signal },
      );
      const output = context.output();
      if (output.json) output.document(made);
      else {
        output.data(made.token);
        output.note(
          `${made.name} may use it as ${made.role}${made.project === null ? "" : ` in project ${made.project}`}${made.expiresAt === null ? "" : ` until ${formatMoment(made.expiresAt)}`}. It is not stored and cannot be shown again: pass it as --token or INTERNEVO_TOKEN.`,
        );
      }
    });
  addList(token, context, {
    description: "list tokens that were not revoked, newest first, without their secrets",
    list: (client, query) => client.listTokens(query),
    none: "no tokens",
    table: tokensTable,
  });
  token
    .command("revoke")
    .description("revoke a token: whoever uses it is refused from now on")
    .argument("<token>", "id of the token, the beginning of it, or its name")
    .action(async (text: string) => {
      const client = await context.client();
      const id = await tokenId(client, text, context.signal);
      await client.revokeToken(id, { signal: context.signal });
      const output = context.output();
      if (output.json) output.document({ revoked: id });
      else
        output.data(
          `token ${text} is revoked${text === id ? "" : ` (${id})`}: whoever uses it is refused from now on`,
        );
    });
}
