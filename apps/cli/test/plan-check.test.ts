import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parsePlanLabel } from "@internevo/domain";
import type { Command } from "commander";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Context } from "../src/context.ts";
import { PLAN_HELP } from "../src/plan-argument.ts";
import { commandLine } from "../src/run.ts";
import { cliIn } from "./in-process.ts";

const cli = cliIn(process.env);
let folder = "";
let job = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "internevo-plan-check-"));
  job = join(folder, "job.yaml");
  writeFileSync(
    job,
    JSON.stringify({
      name: "seven",
      model: "llama-7b",
      sequenceLengthTokens: 4096,
      globalBatchTokens: 4_194_304,
      cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB", profile: "a800-128" },
    }),
  );
});
afterAll(() => rmSync(folder, { recursive: true }));

const GOOD = "b1 n8 a0 pp1 dp128 tp1 sp1 ps8 gs1 oss16";

/**
 * Of each command the arguments and options that are a plan: the field that errors name, and a command line
 * with the plan there. Why-not alone is for plans that do not divide.
 */
const TAKES_A_PLAN: Readonly<
  Record<
    string,
    Readonly<Record<string, { readonly field: string; readonly line: (plan: string) => readonly string[] }>>
  >
> = {
  plan: { "--locate": { field: "--locate", line: (plan) => ["plan", job, "--locate", plan] } },
  "why-not": { plan: { field: "", line: (plan) => ["why-not", job, plan] } },
  explain: {
    a: { field: "A", line: (plan) => ["explain", job, plan, GOOD] },
    b: { field: "B", line: (plan) => ["explain", job, GOOD, plan] },
  },
  simulate: { plan: { field: "plan", line: (plan) => ["simulate", job, plan] } },
  memory: { "--plan": { field: "--plan", line: (plan) => ["memory", job, "--plan", plan] } },
  export: {
    "--plan": {
      field: "--plan",
      line: (plan) => ["export", job, "--framework", "deepspeed", "--plan", plan],
    },
  },
};
/**
 * There is no job file to hold the plan against: a checkpoint is cut for a plan of any job of its model, and a plan
 * change is of a job that trains.
 */
const WITHOUT_A_FILE = { reshard: ["--plan"], ask: ["plan"] };
const refusing = () =>
  Object.entries(TAKES_A_PLAN)
    .filter(([name]) => name !== "why-not")
    .flatMap(([, places]) => Object.values(places));

describe("every command that takes a plan", () => {
  it("is one of these", () => {
    const all = (command: Command): Command[] => [command, ...command.commands.flatMap(all)];
    const found: Record<string, string[]> = {};
    for (const command of all(
      commandLine({ stdout: process.stdout, stderr: process.stderr, env: {} }, false, {} as Context),
    )) {
      const places = [
        ...command.registeredArguments.map((one) => [one.name(), one.description] as const),
        ...command.options.map((one) => [one.long ?? "", one.description] as const),
      ];
      const own = places
        .filter(
          ([name, description]) =>
            description.includes(PLAN_HELP) || /^(?:--)?(?:plan|locate|[ab])$/.test(name),
        )
        .map(([name]) => name);
      if (own.length > 0) found[command.name()] = own;
    }
    expect(found).toEqual({
      ...WITHOUT_A_FILE,
      ...Object.fromEntries(
        Object.entries(TAKES_A_PLAN).map(([name, places]) => [name, Object.keys(places)]),
      ),
    });
  });

  it.each([
    [
      "another batch",
      "b1 n4 a0 pp1 dp128 tp1 sp1 ps8 gs1 oss16",
      "batch-not-divisible",
      "smallest change: microBatches 4 → 8",
    ],
    [
      "another number of ranks",
      "b1 n16 a0 pp1 dp64 tp1 sp1 ps8 gs1 oss8",
      "ranks-not-divisible",
      "smallest change: dataParallel 64 → 128",
    ],
    [
      "factors that do not divide",
      "b1 n8 a0 pp1 dp128 tp1 sp1 ps2147483647 gs5 oss16",
      "sharding-not-divisible",
      "choose a divisor of 128",
    ],
  ])(
    "refuses a plan with %s by the same problem, as a text and as a file",
    async (_, label, reason, remedy) => {
      const file = join(folder, "plan.json");
      writeFileSync(file, JSON.stringify(parsePlanLabel(label)));
      for (const { field, line } of refusing())
        for (const plan of [label, file]) {
          const { status, stdout, stderr } = await cli("--json", ...line(plan));
          expect([status, stdout], line(plan).join(" ")).toEqual([2, ""]);
          const {
            error: { code, errors },
          } = JSON.parse(stderr) as {
            error: {
              code: string;
              errors: { field: string; value: string; message: string; remedy: string }[];
            };
          };
          expect(code).toBe("plan-invalid");
          expect(errors).toHaveLength(1);
          expect(errors[0]).toMatchObject({ field, value: label });
          expect(errors[0]?.message.startsWith(`${reason}: `), errors[0]?.message).toBe(true);
          expect(errors[0]?.remedy.startsWith(remedy), errors[0]?.remedy).toBe(true);
        }
      const asked = await cli("--json", "why-not", job, label);
      expect(JSON.parse(asked.stdout)).toMatchObject({ binding: { reason } });
    },
  );
});
