import { Writable } from "node:stream";
import { ProblemError } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { createOutput, describeError } from "./output.ts";

const hostile = "\u001b[2J\u009b31m\u007f\r\nroot@host:~# \ud800\u202e";
// What a terminal would obey: everything but the line ends between details.
const CONTROLS = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\ud800-\udfff]/u;
const problem = (value: unknown): ProblemError =>
  new ProblemError("job-invalid", `no such thing ${hostile}`, [
    { field: `model.${hostile}`, value, message: `holds ${hostile}`, remedy: `not ${hostile}` },
  ]);

/** What a terminal, or a file, was given. */
function written(isTerminal: boolean): { streams: Parameters<typeof createOutput>[0]; text: () => string } {
  let text = "";
  const stream = Object.assign(
    new Writable({ write: (chunk: Buffer, _encoding, done) => (done(), void (text += chunk.toString())) }),
    { isTTY: isTerminal, columns: 500 },
  );
  return { streams: { stdout: stream, stderr: stream, env: {} }, text: () => text };
}

describe("what the program writes", () => {
  it.each([true, false])(
    "holds colours at most, whatever a server has answered (terminal: %s)",
    (isTerminal) => {
      const { streams, text } = written(isTerminal);
      const output = createOutput(streams, false);
      const said = `one\u001b]0;title\u0007\u001b[8m ${hostile}`;
      output.data(`${output.colors.bold("first")}\t${said}\nsecond`);
      output.note(said);
      const plain = isTerminal ? text().replaceAll(/\u001b\[(?:1|22)m/g, "") : text();
      expect(plain.replaceAll("\t", "")).not.toMatch(CONTROLS);
      expect(plain).toContain("first\tone\\u001b]0;title\\u0007\\u001b[8m \\u001b[2J");
      expect(text().includes("\u001b[1mfirst\u001b[22m")).toBe(isTerminal);
      output.status(said);
      expect(text().slice(text().lastIndexOf("\n") + 1)).not.toMatch(CONTROLS);
    },
  );

  it("is the same document as JSON, without a control character", () => {
    const { streams, text } = written(true);
    createOutput(streams, true).document({ [hostile]: [hostile] });
    expect(text()).not.toMatch(CONTROLS);
    expect(JSON.parse(text())).toEqual({ [hostile]: [hostile] });
  });
});

describe("describeError", () => {
  it("writes nothing that a terminal obeys, wherever it came from", () => {
    for (const value of [hostile, { [hostile]: [hostile] }, 7]) {
      const text = describeError(problem(value), false);
      expect(text).not.toMatch(CONTROLS);
      expect(text.split("\n")).toHaveLength(3);
      expect(text).toContain("\\u001b[2J");
    }
    expect(describeError(new Error(hostile), false)).not.toMatch(CONTROLS);
  });

  it("writes JSON that says the same as before, without a control character", () => {
    const text = describeError(problem(hostile), true);
    expect(text).not.toMatch(CONTROLS);
    expect(JSON.parse(text)).toMatchObject({
      error: { code: "job-invalid", errors: [{ value: hostile, field: `model.${hostile}` }] },
    });
  });

  it("shows numbers that JSON lacks, and values that hold themselves", () => {
    const circle: unknown[] = [];
    circle.push(circle);
    expect(describeError(problem(Number.NaN), false)).toContain("(is NaN)");
    expect(describeError(problem(Number.NEGATIVE_INFINITY), false)).toContain("(is -Infinity)");
    expect(describeError(problem([Number.NaN]), false)).toContain('(is ["NaN"])');
    expect(describeError(problem(circle), false)).toContain("holds");
    expect(JSON.parse(describeError(problem(circle), true))).toHaveProperty("error.errors");
    expect(JSON.parse(describeError(problem(Number.NaN), true))).toMatchObject({
      error: { errors: [{ value: "NaN" }] },
    });
  });

  it("shows what is nested deeper than can be written", () => {
    const deep = JSON.parse(`${"[".repeat(100_000)}${"]".repeat(100_000)}`) as unknown;
    expect(describeError(problem(deep), false)).toContain("nested too deep");
    expect(JSON.parse(describeError(problem(deep), true))).toBeTruthy();
  });

  it("keeps the lines of its own messages", () => {
    expect(describeError(new Error("first\nsecond"), false)).toBe("internevo: first\nsecond");
  });
});
