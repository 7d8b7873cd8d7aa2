import { isAnswerable, type Proposal } from "@internevo/domain";
import { Group } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { mayActAs, useSession } from "../../session/session.tsx";
import { ConfirmedButton } from "../confirmed-button.tsx";

const ANSWERS = [
  {
    answer: "apply",
    label: "Apply",
    question: "Go on under this plan?",
    consequence:
      "The job that does this work writes a checkpoint, and goes on under the plan. Its steps are compared with those before. With less gain than the workload asks for, it goes back by itself.",
    isDanger: false,
  },
  {
    answer: "try",
    label: "Try",
    question: "Try this plan?",
    consequence:
      "The job that does this work writes a checkpoint, trains under the plan for a few steps, and goes back. Its losses stay the same, but for rounding. Then you see what the plan gains.",
    isDanger: false,
  },
  {
    answer: "dismiss",
    label: "Dismiss",
    question: "Dismiss this proposal?",
    consequence: "The same change of plans is not proposed again, unless it promises more.",
    isDanger: true,
  },
] as const;

/** What somebody may say to a proposal that waits for an answer. */
export function ProposalAnswers({ proposal }: { proposal: Proposal }) {
  const session = useSession();
  const queries = useQueryClient();
  if (!isAnswerable(proposal) || !mayActAs(session, "operator")) return null;
  return (
    <Group gap="xs" mt="xs">
      {ANSWERS.filter(({ answer }) => answer === "dismiss" || proposal.proposed.runnable).map(
        ({ answer, label, question, consequence, isDanger }) => (
          <ConfirmedButton
            key={answer}
            label={label}
            name="this proposal"
            question={question}
            consequence={consequence}
            keep="Leave it"
            confirm={label}
            isDanger={isDanger}
            onConfirm={async () => {
              await session.client.answerProposal(proposal.workloadId, proposal.id, answer);
              await queries.invalidateQueries({ queryKey: ["proposals", proposal.workloadId] });
            }}
          />
        ),
      )}
    </Group>
  );
}
