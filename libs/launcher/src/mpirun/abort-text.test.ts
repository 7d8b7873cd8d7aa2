import { expect, it } from "vitest";
import { withoutAbortText } from "./abort-text.ts";

const FRAME = "-".repeat(74);
const ABORT = [
  FRAME,
  "Primary job  terminated normally, but 1 process returned",
  "a non-zero exit code. Per user-direction, the job has been aborted.",
  FRAME,
  FRAME,
  "mpirun detected that one or more processes exited with non-zero status, thus causing",
  "the job to be terminated. The first process to do so was:",
  "",
  "  Process name: [[14945,1],1]",
  "  Exit code:    75",
  FRAME,
];
const OTHER = [FRAME, "A process or daemon was unable to complete a TCP connection", FRAME];

function told(lines: readonly string[], isStopping: boolean): string[] {
  const kept: string[] = [];
  const tell = withoutAbortText(
    (line) => kept.push(line),
    () => isStopping,
  );
  for (const line of lines) tell(line);
  return kept;
}

it("leaves out what mpirun says of ranks that were asked to end, and nothing else", () => {
  expect(told(["before", "mpirun: Forwarding signal 10 to job", ...ABORT, "after"], true)).toEqual([
    "before",
    "after",
  ]);
  expect(told([...OTHER, "a rank's word", ...ABORT], true)).toEqual([...OTHER, "a rank's word"]);
});

it("tells all of it of ranks that ended by themselves", () => {
  expect(told(["before", ...ABORT], false)).toEqual(["before", ...ABORT]);
});
