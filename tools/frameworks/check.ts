// Holds exported configurations against the frameworks' own parsers: `npm run frameworks -- --help`. The
// packages take some gigabytes, so this is no part of `npm test`.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import fc from "fast-check";
import { type PlanOfJob, planOfJob } from "../../libs/plan/src/index.ts";
import {
  parsePlanLabel,
  planLabel,
  ProblemError,
  resolveJob,
  type JobSpec,
  type Plan,
} from "../../libs/domain/src/index.ts";
import {
  exportConfiguration,
  type ExportedConfiguration,
  type Framework,
} from "../../libs/frameworks/src/index.ts";
import { planAndJob } from "../../libs/frameworks/test/random-plans.ts";
import { CASES } from "./cases.ts";
import { checkoutVersion, EnvironmentError, packageVersion, pythonEnvironment } from "./environment.ts";

const { values: options } = parseArgs({
  options: {
    python: { type: "string" },
    megatron: { type: "string" },
    "megatron-deepspeed": { type: "string" },
    random: { type: "string", default: "60" },
    seed: { type: "string", default: "1" },
    only: { type: "string" },
    help: { type: "boolean", default: false },
  },
});
if (options.help) {
  console.log(`npm run frameworks -- [--megatron CHECKOUT] [--megatron-deepspeed CHECKOUT] [--random NUMBER] [--seed NUMBER] [--only PARSER] [--python PYTHON]

Exports plans, and has the frameworks' own parsers read them. Each plan must be read back as it was written, or be refused by the export
with field, value and remedy.
--megatron            a checkout of NVIDIA/Megatron-LM; without it, its parser is left out
--megatron-deepspeed  a checkout of deepspeedai/Megatron-DeepSpeed; without it, its parser is left out
--random              random plans beside the ${CASES.length} that are written down; default: 60
--seed                of the random plans; default: 1
--only                one of megatron, megatron-deepspeed, torchtitan, deepspeed
--python              an interpreter with the packages; default: .tools/frameworks, made where it lacks (about 6 GB)`);
  process.exit(0);
}

interface Parser {
  readonly name: string;
  readonly framework: Framework;
  readonly checkout?: string;
}

interface Case {
  readonly job: JobSpec;
  readonly plan: PlanOfJob;
}

/**
 * What a parser made of a configuration, in the words of a job and its plan: of each, what the parser reads.
 */
interface Read {
  readonly ok: boolean;
  readonly error?: string;
  readonly seed?: number;
  readonly precision?: string;
  readonly model?: Readonly<Record<string, unknown>>;
  readonly plan?: Readonly<Record<string, unknown>>;
}

/** What the export says of a case, or why it refuses it. */
type Answer = { readonly written: ExportedConfiguration } | { readonly refused: ProblemError };

function answerOf(framework: Framework, { job, plan }: Case): Answer {
  try {
    return { written: exportConfiguration(framework, job, plan) };
  } catch (error) {
    if (
      error instanceof ProblemError &&
      error.details.length > 0 &&
      error.details.every(({ field, message, remedy }) => field !== "" && message !== "" && remedy !== "")
    )
      return { refused: error };
    throw error;
  }
}

const DEFAULTS: Partial<Plan> = { contextParallel: 1, pipelineChunks: 1, recomputeLayers: 0 };

/** Everything that a parser reads otherwise than it was meant. */
function differences(read: Read, job: JobSpec, { plan, inexpressible }: ExportedConfiguration): string[] {
  const nearest = new Map(inexpressible.map((each) => [each.field, each.nearest]));
  const meant = (field: string, value: unknown): unknown => (nearest.has(field) ? nearest.get(field) : value);
  const compared: [field: string, meant: unknown, read: unknown][] = [
    ...(read.seed === undefined
      ? []
      : [["seed", meant("seed", job.seed), read.seed] as [string, unknown, unknown]]),
    ["precision", meant("precision", job.precision), read.precision],
    ...Object.entries(read.model ?? {}).map(([field, value]): [string, unknown, unknown] => [
      `model.${field}`,
      meant(`model.${field}`, job.model[field as keyof JobSpec["model"]]),
      value,
    ]),
    ...Object.entries(read.plan ?? {}).map(([field, value]): [string, unknown, unknown] => [
      `plan.${field}`,
      plan[field as keyof Plan] ?? DEFAULTS[field as keyof Plan],
      value,
    ]),
  ];
  return compared
    .filter(([, expected, found]) => expected !== found)
    .map(([field, expected, found]) => `${field} is read as ${String(found)}, ${String(expected)} is meant`);
}

/** Answers of one parser, in the order of the folders. */
async function* readings(
  python: string,
  { name, checkout }: Parser,
  folders: readonly { folder: string; worldSize: number }[],
): AsyncGenerator<Read> {
  const child = spawn(
    python,
    [
      join(fileURLToPath(new URL(".", import.meta.url)), "check.py"),
      name,
      ...(checkout === undefined ? [] : [checkout]),
    ],
    { stdio: ["pipe", "pipe", "pipe"] },
  );
  let said = "";
  child.stderr.on("data", (text: Buffer) => (said = `${said}${text.toString()}`.slice(-2000)));
  const ended = new Promise<number | null>((resolve) => child.on("close", resolve));
  child.stdin.on("error", () => undefined);
  child.stdin.end(folders.map((each) => `${JSON.stringify(each)}\n`).join(""));
  let count = 0;
  for await (const line of createInterface({ input: child.stdout })) {
    count += 1;
    yield JSON.parse(line) as Read;
  }
  const status = await ended;
  if (status !== 0 || count !== folders.length)
    throw new EnvironmentError(
      `the parser of ${name} ended with status ${String(status)} ` +
        `after ${count} of ${folders.length} plans:\n${said.trim()}`,
    );
}

interface Tally {
  readonly parser: string;
  readonly version: string;
  readonly given: number;
  accepted: number;
  refused: number;
  failed: number;
}

async function check(
  python: string,
  parser: Parser,
  cases: readonly Case[],
  scratch: string,
): Promise<Tally> {
  const { name, framework, checkout } = parser;
  const version = checkout === undefined ? packageVersion(python, name) : checkoutVersion(checkout);
  const tally: Tally = { parser: name, version, given: cases.length, accepted: 0, refused: 0, failed: 0 };
  const asked: { job: JobSpec; written: ExportedConfiguration; folder: string; worldSize: number }[] = [];
  for (const [index, each] of cases.entries()) {
    const answer = answerOf(framework, each);
    if ("refused" in answer) {
      tally.refused += 1;
      console.log(
        `refused ${name}  ${planLabel(each.plan)}  ${answer.refused.details.map(({ field, value, message, remedy }) => `${field} ${String(value)}: ${message} → ${remedy}`).join("; ")}`,
      );
      continue;
    }
    const folder = join(scratch, `${name}-${index}`);
    mkdirSync(folder);
    for (const file of answer.written.files) writeFileSync(join(folder, file.name), file.text);
    asked.push({
      job: each.job,
      written: answer.written,
      folder,
      worldSize: each.job.cluster.nodes * each.job.cluster.gpusPerNode,
    });
  }
  let at = 0;
  for await (const read of readings(
    python,
    parser,
    asked.map(({ folder, worldSize }) => ({ folder, worldSize })),
  )) {
    const { job, written } = asked[at++] as (typeof asked)[number];
    const faults = read.ok ? differences(read, job, written) : [read.error ?? "failed"];
    if (faults.length === 0) tally.accepted += 1;
    else tally.failed += 1;
    console.log(
      `${faults.length === 0 ? "ok     " : "FAILED "} ${name}  ${job.model.name}, ${job.precision}  ${planLabel(written.plan)}${faults.length === 0 ? "" : `  ${faults.join("; ")}`}`,
    );
  }
  return tally;
}

function printTable(tallies: readonly Tally[]): void {
  const rows = [
    ["parser", "version", "plans", "accepted", "refused in words", "failed"],
    ...tallies.map(({ parser, version, given, accepted, refused, failed }) =>
      [parser, version, given, accepted, refused, failed].map(String),
    ),
  ];
  const widths = (rows[0] as string[]).map((_, column) =>
    Math.max(...rows.map((row) => (row[column] as string).length)),
  );
  console.log(
    `\n${rows
      .map((row) =>
        row
          .map((cell, column) => cell.padEnd(widths[column] as number))
          .join("  ")
          .trimEnd(),
      )
      .join("\n")}`,
  );
}

async function main(): Promise<number> {
  const parsers: Parser[] = [
    ...(options.megatron === undefined
      ? []
      : [{ name: "megatron", framework: "megatron" as const, checkout: options.megatron }]),
    ...(options["megatron-deepspeed"] === undefined
      ? []
      : [
          {
            name: "megatron-deepspeed",
            framework: "deepspeed" as const,
            checkout: options["megatron-deepspeed"],
          },
        ]),
    { name: "torchtitan", framework: "torchtitan" as const },
    { name: "deepspeed", framework: "deepspeed" as const },
  ]
    .filter(({ name }) => options.only === undefined || name === options.only)
    // Parsers change their folder, and load parts of the checkout afterwards.
    .map((parser) => ("checkout" in parser ? { ...parser, checkout: resolve(parser.checkout) } : parser));
  if (parsers.length === 0)
    throw new EnvironmentError(
      `--only ${String(options.only)} is no parser that is checked: give ` +
        "megatron or megatron-deepspeed with its checkout, torchtitan, or deepspeed",
    );
  for (const { name, checkout } of parsers) if (checkout !== undefined) checkoutVersion(checkout, name);
  const python = options.python ?? pythonEnvironment();
  const cases: Case[] = [
    ...CASES.map(([written, label]) => {
      const job = resolveJob(written);
      return { job, plan: planOfJob(parsePlanLabel(label), job) };
    }),
    ...fc
      .sample(planAndJob, { numRuns: Number(options.random), seed: Number(options.seed) })
      .map(({ job, plan }) => ({ job, plan: planOfJob(plan, job) })),
  ];
  const scratch = mkdtempSync(join(tmpdir(), "internevo-frameworks-"));
  try {
    const tallies: Tally[] = [];
    for (const parser of parsers) tallies.push(await check(python, parser, cases, scratch));
    printTable(tallies);
    for (const name of ["megatron", "megatron-deepspeed"] as const)
      if (options[name] === undefined && options.only === undefined)
        console.log(`${name} was left out: give its checkout with --${name}`);
    const failed = tallies.reduce((sum, tally) => sum + tally.failed, 0);
    console.log(
      failed === 0
        ? "every plan is read as it was written, or refused in words"
        : `${failed} configurations are not read as they were written`,
    );
    return failed === 0 ? 0 : 1;
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  if (!(error instanceof EnvironmentError)) throw error;
  console.error(error.message);
  process.exitCode = 2;
}
