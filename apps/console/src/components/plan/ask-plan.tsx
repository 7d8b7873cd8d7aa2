import { looksLikePlanLabel, planLabel } from "@internevo/domain";
import { Button, Group, NativeSelect, SegmentedControl, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";
import type { Subject } from "../../data/advice.ts";
import type { PlanRow } from "../../data/plan-rows.ts";
import { Configurations } from "./configurations.tsx";
import { StageMemory, WhyNot } from "./why-not.tsx";

const OTHER = "another";
const QUESTIONS = [
  { value: "why-not", label: "Why not?" },
  { value: "memory", label: "Memory" },
  { value: "files", label: "Configuration" },
] as const;
type Question = (typeof QUESTIONS)[number]["value"];

interface AskPlanProps {
  readonly rows: readonly PlanRow[];
  readonly subject: Subject;
  readonly jobName: string;
  readonly limitBytes: number;
}

/**
 * One plan, of the table or any other: why it is not chosen, what its ranks' memory holds, and its
 * configuration for other frameworks.
 */
export function AskPlan({ rows, subject, jobName, limitBytes }: AskPlanProps) {
  const [picked, setPicked] = useState((rows[1] ?? rows[0])?.key ?? OTHER);
  const [question, setQuestion] = useState<Question>("why-not");
  const [text, setText] = useState("");
  const [fault, setFault] = useState<string>();
  const [other, setOther] = useState<string>();
  const row = rows.find(({ key }) => key === picked);
  const plan = row ? row.candidate.plan : other;
  const ask = (event: FormEvent): void => {
    event.preventDefault();
    const isLabel = looksLikePlanLabel(text);
    setFault(
      isLabel
        ? undefined
        : 'Write it as tables do, e.g. b1 n4 a0 pp1 dp2 tp1 sp4 ps8 gs1 oss1; for "Why not?" also a part of it, e.g. tp8 pp2',
    );
    setOther(isLabel ? text.trim() : undefined);
  };
  return (
    <>
      <div className="plan-pickers">
        <NativeSelect
          label="Plan"
          value={picked}
          onChange={(event) => setPicked(event.currentTarget.value)}
          data={[
            ...rows.map(({ key, rank, chosen, candidate }) => ({
              value: key,
              label: `#${rank}${chosen ? ", chosen" : ""}: ${planLabel(candidate.plan)}`,
            })),
            { value: OTHER, label: "Another plan…" },
          ]}
        />
        {!row && (
          <form onSubmit={ask}>
            <Group gap="xs" align="flex-end" wrap="nowrap">
              <TextInput
                label="The other plan"
                placeholder="b1 n4 a0 pp1 dp2 tp1 sp4 ps8 gs1 oss1"
                value={text}
                onChange={(event) => setText(event.currentTarget.value)}
                className="grow"
                spellCheck={false}
                autoComplete="off"
                error={fault}
              />
              <Button type="submit" disabled={text.trim() === ""}>
                Ask
              </Button>
            </Group>
          </form>
        )}
      </div>
      <SegmentedControl
        mb="sm"
        aria-label="What to know of it"
        data={[...QUESTIONS]}
        value={question}
        onChange={(value) => setQuestion(value)}
      />
      {plan !== undefined && question === "why-not" && (
        <WhyNot subject={subject} plan={plan} limitBytes={limitBytes} />
      )}
      {plan !== undefined && question === "memory" && <StageMemory subject={subject} plan={plan} />}
      {plan !== undefined && question === "files" && (
        <Configurations subject={subject} plan={plan} jobName={jobName} />
      )}
    </>
  );
}
