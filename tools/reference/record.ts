// Records what a change of structure must leave as it is, and compares: the planner's answers, the trainer's memory plans, losses and gradients,
// and the interfaces. Both records must be made on one machine.
// usage: npm run record -- save FILE [--only plans,memory,training,interfaces]
//        npm run record -- compare FILE [--only …] [--show 20]
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { assertProgram, trainerIn } from "@internevo/launcher";
import { recordInterfaces } from "./src/record/interfaces.ts";
import { recordMemory } from "./src/record/memory.ts";
import { recordPlans } from "./src/record/plans.ts";
import { differences, type Records, type Section } from "./src/record/records.ts";
import { recordTraining } from "./src/record/training.ts";

const NATIVE_DIRECTORY =
  process.env["INTERNEVO_NATIVE_DIRECTORY"] ?? fileURLToPath(new URL("../../native/dist", import.meta.url));
const trainer = trainerIn(NATIVE_DIRECTORY);
const sections: Readonly<Record<string, () => Section | Promise<Section>>> = {
  plans: recordPlans,
  memory: () => recordMemory(trainer),
  training: () => recordTraining(trainer),
  interfaces: recordInterfaces,
};
const names = Object.keys(sections);

function usage(message: string): never {
  console.error(
    `${message}\nusage: npm run record -- save|compare FILE [--only ${names.join(",")}] [--show 20]`,
  );
  process.exit(2);
}

async function record(only: readonly string[]): Promise<Records> {
  await assertProgram(trainer);
  const records: Record<string, Section> = {};
  for (const name of only) {
    const begin = performance.now();
    const section = await sections[name]?.();
    if (section === undefined) usage(`--only ${name}: there is no such section`);
    records[name] = section;
    console.error(
      `${name}: ${Object.keys(section).length} entries in ${((performance.now() - begin) / 1000).toFixed(0)} s`,
    );
  }
  return records;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { only: { type: "string", default: names.join(",") }, show: { type: "string", default: "20" } },
});
const [what, file, ...more] = positionals;
if ((what !== "save" && what !== "compare") || file === undefined || more.length > 0)
  usage("say what to do, and with which file");
const only = values.only.split(",");
for (const name of only) if (!names.includes(name)) usage(`--only ${name}: there is no such section`);

if (what === "save") await writeFile(file, JSON.stringify(await record(only)));
else {
  const before = JSON.parse(await readFile(file, "utf8")) as Records;
  const common = only.filter((name) => name in before);
  const found = differences(before, await record(common));
  for (const { section, key, ...sides } of found.slice(0, Number(values.show))) {
    console.log(
      `${section}: ${key}\n  before ${JSON.stringify(sides.before)}\n  after  ${JSON.stringify(sides.after)}`,
    );
  }
  console.log(`${found.length} differences in ${common.join(", ")}`);
  if (found.length > 0) process.exitCode = 1;
}
