// What gpu-check measured on a GPU, as a page: reads its files of results, needs no GPU; Markdown on stdout, or the page itself.
// usage: npm run --silent bench -- gpu RESULTS.jsonl [MORE.jsonl ...] [--profile PROFILE.json] [--write docs/benchmarks]
// --profile: one that `internevo profile assemble` made of the same files; plans are then predicted with it, not with the kit's.
// Results of the model of a GPU make a page too, but are never written to docs.
import { readFile, writeFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { gpuPageBody, type GpuPageOptions } from "./src/gpu-page.ts";
import { CostModel, parseProfile } from "@internevo/cost-model";
import { planOfJob } from "@internevo/plan";
import { readCheckResults } from "@internevo/profiles";
import { repository } from "./src/measure.ts";
import { writePage } from "./src/report.ts";

const { values, positionals } = parseArgs({
  options: { profile: { type: "string" }, write: { type: "string" } },
  allowPositionals: true,
});
if (positionals.length === 0) throw new Error("give the files that gpu-check wrote with --out");
const files = await Promise.all(
  positionals.map(async (name) => ({ name, text: await readFile(name, "utf8") })),
);
const results = readCheckResults(files);
async function predictorOf(path: string): Promise<NonNullable<GpuPageOptions["predictor"]>> {
  let document: unknown;
  try {
    document = JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    throw new Error(
      `--profile ${path}: ${(error as Error).message}; give a profile that \`internevo profile assemble\` wrote`,
      { cause: error },
    );
  }
  const profile = parseProfile(document, `the profile ${path}`);
  return {
    profile: profile.name,
    predict: (spec, plan, threadsPerRank) =>
      new CostModel(spec, profile, { memoryModel: spec.memoryModel, threadsPerRank }).predict(
        planOfJob(plan, spec),
      ),
  };
}
const body = gpuPageBody(
  results,
  values.profile === undefined ? {} : { predictor: await predictorOf(values.profile) },
);
if (values.write === undefined) {
  process.stdout.write(`${body}\n`);
} else {
  const directory = resolve(values.write);
  if (results.runs.some(({ small }) => small) && directory.startsWith(join(repository, "docs")))
    throw new Error(
      "--write docs: these results are those of the model of a GPU; give results of a GPU, or another folder",
    );
  await writePage({ directory, name: "gpu", title: "On a GPU", body, images: {} });
  await writeFile(join(directory, "gpu.jsonl"), files.map(({ text }) => text.trimEnd()).join("\n") + "\n");
  console.error(
    `${join(values.write, "gpu.md")} from ${positionals.map((name) => basename(name)).join(", ")}`,
  );
}
