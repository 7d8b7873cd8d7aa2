import type { InternEvoClient } from "@internevo/client";
import { isAnswerable, ProblemError, type Proposal } from "@internevo/domain";
import type { Command } from "commander";
import type { Context } from "../context.ts";
import { everyItem } from "../lists.ts";
import { workloadId } from "../resolve.ts";
import { proposalsText } from "../workload-views.ts";
import { WORKLOAD_ARGUMENT } from "./replan-settings.ts";

/**
 * The proposal that is meant: by the beginning of its id, or the one that waits for an answer.
 * @throws ProblemError where none is meant, or several
 */
async function meant(
  client: InternEvoClient,
  workload: string,
  text: string | undefined,
  signal: AbortSignal,
): Promise<string> {
  const all = await everyItem((cursor) => client.listProposals(workload, { signal, ...cursor }));
  const found = all.filter((one) => (text === undefined ? isAnswerable(one) : one.id.startsWith(text)));
  const [one, ...others] = found;
  if (one && others.length === 0) return one.id;
  const what = text === undefined ? "no proposal waits for an answer" : `no proposal begins with ${text}`;
  throw new ProblemError(one ? "bad-request" : "not-found", one ? `${text} names several proposals` : what, [
    {
      field: "proposal",
      value: text ?? "",
      message: one ? `begins ${found.map(({ id }) => id).join(", ")}` : what,
      remedy: `see internevo replan proposals ${workload}`,
    },
  ]);
}

const NOTES: Readonly<Record<"try" | "apply" | "dismiss", (proposal: Proposal) => string>> = {
  try: ({ jobId }) => `job ${jobId ?? ""} tries it at its next checkpoint, and goes back`,
  apply: ({ jobId }) => `job ${jobId ?? ""} goes over to it at its next checkpoint, and compares`,
  dismiss: () => "the same change is not proposed again, unless it promises more",
};

/** What somebody says to a proposal. */
export function addAnswers(replan: Command, context: Context): void {
  for (const [answer, description] of [
    ["try", "have a run try a proposed plan for a few steps, and go back"],
    ["apply", "have a run go on under a proposed plan"],
    ["dismiss", "say no to a proposed plan"],
  ] as const)
    replan
      .command(answer)
      .description(description)
      .argument("<workload>", WORKLOAD_ARGUMENT)
      .argument("[proposal]", "id of the proposal, or the beginning of it; default: the one that waits")
      .action(async (text: string, proposal: string | undefined) => {
        const client = await context.client();
        const { signal } = context;
        const id = await workloadId(client, text, signal);
        const which = await meant(client, id, proposal, signal);
        const answered = await client.answerProposal(id, which, answer, { signal });
        const output = context.output();
        if (output.json) return output.document(answered);
        output.data(proposalsText([answered], output.colors));
        output.note(NOTES[answer](answered));
      });
}
