import type { Problem } from "@internevo/contracts";
import { Code, List, Text } from "@mantine/core";
import { sentence } from "../text/format.ts";
import { Prose } from "./prose.tsx";

const shown = (value: unknown): string => {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 120 ? `${text.slice(0, 117)}…` : text;
};

/** What a problem says of the whole, unless that is its first fault once more. */
export const summaryOf = ({ detail, errors = [] }: Problem): string | undefined =>
  detail === undefined || errors.some(({ message }) => detail.endsWith(message)) ? undefined : detail;

/** The faults of a refused document, field by field. */
export function ProblemDetails({
  problem,
  lineOf,
}: {
  problem: Problem;
  lineOf?: ((field: string) => number | undefined) | undefined;
}) {
  const faults = problem.errors ?? [];
  if (faults.length === 0)
    return problem.traceId === undefined ? null : (
      <Text size="xs" c="dimmed">
        Trace {problem.traceId}
      </Text>
    );
  return (
    <List size="sm" spacing={6} className="faults">
      {faults.map((fault, index) => {
        // Within a request the job is one of its fields; within the document it is all there is.
        const line = lineOf?.(fault.field.replace(/^job\./, ""));
        return (
          <List.Item key={index}>
            <Code>{fault.field}</Code>{" "}
            {line !== undefined && (
              <Text span size="xs" c="dimmed">
                (line {line}){" "}
              </Text>
            )}
            {fault.value !== undefined && fault.value !== null && shown(fault.value) !== fault.field && (
              <>
                <Code>{shown(fault.value)}</Code>{" "}
              </>
            )}
            <Prose>{sentence(fault.message)}</Prose>{" "}
            <Text span size="sm" fw={600}>
              <Prose>{sentence(fault.remedy.charAt(0).toUpperCase() + fault.remedy.slice(1))}</Prose>
            </Text>
          </List.Item>
        );
      })}
    </List>
  );
}
