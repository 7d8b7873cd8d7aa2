import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ProblemError } from "@internevo/domain";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { describeError } from "./output.ts";
import { readJobFile } from "./job-input.ts";

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-job-input-"));
});
afterAll(() => rm(directory, { recursive: true }));

let count = 0;
async function read(content: string | Uint8Array): Promise<unknown> {
  const path = join(directory, `${(count += 1)}.yaml`);
  await writeFile(path, content);
  return readJobFile(path);
}

async function problemOf(content: string | Uint8Array): Promise<ProblemError> {
  const error: unknown = await read(content).then(
    () => new Error("it was read"),
    (thrown: unknown) => thrown,
  );
  if (error instanceof ProblemError) return error;
  throw error;
}

const bomb = (): string => {
  const lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"];
  for (let i = 1; i < 9; i += 1)
    lines.push(
      `a${i}: &a${i} [${Array(9)
        .fill(`*a${i - 1}`)
        .join(", ")}]`,
    );
  return lines.join("\n");
};

describe("readJobFile", () => {
  it("reads YAML and JSON, with anchors", async () => {
    expect(await read('{"name": "x", "steps": 1.0}')).toEqual({ name: "x", steps: 1 });
    expect(await read("\ufeffname: &n x\nmodel: { name: *n, base: llama-7b }\n")).toEqual({
      name: "x",
      model: { name: "x", base: "llama-7b" },
    });
  });

  it("takes relative paths from the job file's folder, those of a mixture too", async () => {
    const data = "{ format: mixture, sources: [{ format: text, paths: [a, /b], weight: 1 }, { path: c }] }";
    expect(await read(`data: ${data}\nvalidation: { data: { format: tokens, path: d } }`)).toEqual({
      data: {
        format: "mixture",
        sources: [
          { format: "text", paths: [join(directory, "a"), "/b"], weight: 1 },
          { path: join(directory, "c") },
        ],
      },
      validation: { data: { format: "tokens", path: join(directory, "d") } },
    });
    for (const data of ["null", "7", "{ sources: 7 }", "{ sources: [null, 7] }"])
      expect(await read(`name: x\ndata: ${data}`)).toMatchObject({ name: "x" });
  });

  it.each([
    ["a list that holds itself", "name: &a [*a]", "name.0", "line 1, column 11"],
    [
      "an object that holds itself, far in",
      "model: &m\n  base:\n    - x: *m\n",
      "model.base.0.x",
      "line 3, column 10",
    ],
    ["an alias of nothing", "name: x\nmodel: *nobody", "model", "line 2, column 8"],
    ["no number", "name: x\nseed: .nan", "seed", "line 2, column 7"],
    ["an infinite number", "optimizer: { peakLearningRate: -.inf }", "optimizer.peakLearningRate", "line 1"],
    ["a number beyond any", "steps: 1e999", "steps", "line 1, column 8"],
    ["an object as a field's name", "? [a, b]\n: 1", "(field name)", "line 1"],
  ])("refuses %s with its field and line", async (_what, content, field, line) => {
    const problem = await problemOf(content);
    expect(problem.code).toBe("job-invalid");
    expect(problem.details.map((detail) => detail.field)).toEqual([field]);
    expect(problem.details[0]?.message).toContain(line);
    expect(problem.details[0]?.remedy).not.toBe("");
  });

  it.each([
    ["aliases of aliases of aliases", bomb(), /alias/],
    ["lists a hundred thousand deep", "[".repeat(100_000), /deep/],
    ["dashes a hundred thousand deep", "- ".repeat(100_000), /deep/],
    ["lists that end, five hundred deep", `name: ${"[".repeat(500)}${"]".repeat(500)}`, /deep/],
    ["what is not UTF-8", Uint8Array.of(0x6e, 0x3a, 0x20, 0xff, 0xfe), /UTF-8/],
    ["what is too large", `name: ${"x".repeat(1 << 20)}`, /larger than 1 MiB/],
    ["several documents", "name: x\n---\nname: y", /document/],
  ])(
    "refuses %s in words",
    async (_what, content, message) => {
      const problem = await problemOf(content);
      expect(problem.code).toBe("job-invalid");
      expect(problem.details[0]?.message).toMatch(message);
      expect(problem.details[0]?.message).not.toMatch(/call stack/);
      expect(problem.details[0]?.remedy).not.toBe("");
    },
    20_000,
  );

  it("shows the line that has to be changed, and names its place once", async () => {
    const problem = await problemOf("name: x\nmodel: llama-7b\nsteps: 5\n seed: 3\n");
    expect(problem.details).toEqual([
      {
        field: "line 4",
        message: "is indented one column too far",
        remedy: "begin it in column 1, as the line above it",
        excerpt: " seed: 3\n ^",
      },
    ]);
    const said = describeError(problem, false).replace(/\S+\.yaml/, "job.yaml");
    expect(said).toBe(
      "internevo: job.yaml is neither YAML nor JSON\n  line 4 is indented one column too " +
        "far:\n       seed: 3\n       ^\n    → begin it in column 1, as the line above it",
    );
  });

  it("reads no more of an endless file than it may hold", async () => {
    const error: unknown = await readJobFile("/dev/zero").catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ProblemError);
    expect((error as ProblemError).details[0]?.message).toContain("larger than 1 MiB");
  });
});
