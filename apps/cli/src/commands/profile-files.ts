import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { findShippedProfile, SHIPPED_PROFILES } from "@internevo/cost-model";
import { ProblemError, type Profile } from "@internevo/domain";
import { diffProfiles, NCCL_TEST_PROGRAMS, parseCurvesCsv, parseNcclTests, withCurves } from "@internevo/profiles";
import { Option, type Command } from "commander";
import type { Context } from "../context.ts";
import { assertWritable, readText, writeWhole } from "../files.ts";
import { differenceText } from "../profile-difference.ts";
import { profileId } from "../resolve.ts";
import { loadProfile } from "./plan.ts";

/** A shipped profile or a file, offline; otherwise one that is stored. */
async function findProfile(text: string, field: string, context: Context): Promise<Profile> {
  if (findShippedProfile(text) !== undefined || text.includes("/") || text.endsWith(".json") || existsSync(text)) return loadProfile(text, field);
  try {
    const client = await context.client();
    return (await client.getProfile(await profileId(client, text, context.signal), { signal: context.signal })).profile;
  } catch (error) {
    if (!(error instanceof ProblemError) || (error.code !== "unavailable" && error.code !== "not-found")) throw error;
    const stored = error.code === "unavailable" ? "; stored ones were not looked at, since no API is given and no local stack runs" : ", nor one that is stored";
    const offline = `give a shipped profile (${SHIPPED_PROFILES.join(", ")}), the path of a profile file`;
    throw new ProblemError("profile-missing", `there is no profile ${text}`, [
      { field, value: text, message: `is neither a shipped profile nor a file${stored}`, remedy: error.code === "unavailable" ? `${offline}, or an API with --url and --token (or \`internevo up\`)` : `${offline}, or one that \`internevo profile list\` shows` },
    ], { cause: error });
  }
}

const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`;

interface ImportOptions {
  readonly into: string;
  readonly format: "nccl-tests" | "csv";
  readonly op?: string;
  readonly name?: string;
  readonly out?: string;
}

export function addProfileFiles(profile: Command, context: Context): void {
  profile
    .command("diff")
    .description("what two profiles measured differently, and whether that is more than their spread")
    .argument("<first>", "a shipped profile, a file, or the id, the beginning of it, or the name of a stored profile")
    .argument("<second>", "likewise; what it says is beside the first")
    .action(async (first: string, second: string) => {
      const [before, after] = [await findProfile(first, "first", context), await findProfile(second, "second", context)];
      const output = context.output();
      const difference = diffProfiles(before, after);
      if (output.json) output.document({ first: before.name, second: after.name, ...difference });
      else output.data(differenceText(difference, [before.name, after.name], output.colors));
    });
  profile
    .command("import")
    .description("put curves of collectives that were measured elsewhere into a profile, offline")
    .argument("<files...>", "output or JSON reports of nccl-tests, one program each; or CSV with op,groupSize,placement,bytes,medianSeconds")
    .requiredOption("--into <profile>", "the profile that says the rest: a shipped one, a file, or a stored one")
    .addOption(new Option("--format <format>", "what the files are").choices(["nccl-tests", "csv"]).default("nccl-tests"))
    .option("--op <program>", `which program of nccl-tests wrote the files, where they do not say: ${NCCL_TEST_PROGRAMS.join(", ")}`)
    .option("--name <name>", "name of the result; default: of the profile it goes into")
    .option("--out <file>", "write the result there; default: standard output")
    .action(async (files: readonly string[], { into, format, op, name, out }: ImportOptions) => {
      if (out !== undefined) await assertWritable(out, "--out");
      const base = await findProfile(into, "--into", context);
      const imported = await Promise.all(files.map(async (file) => {
        const text = await readText(file, { code: "profile-invalid", field: "files", what: format === "csv" ? "a CSV file with the columns of `profile import --help`" : "what a program of nccl-tests printed, or its report" });
        return { file, ...(format === "csv" ? parseCurvesCsv(text, file) : parseNcclTests(text, { file, ...(op === undefined ? {} : { program: op }) })) };
      }));
      const merged = withCurves(name === undefined ? base : { ...base, name }, imported);
      const output = context.output();
      const document = JSON.stringify(merged, null, 2);
      if (out === undefined) output.data(document);
      else {
        await writeWhole(out, `${document}\n`, "--out");
        output.note(`${counted(imported.reduce((sum, { curves }) => sum + curves.length, 0), "curve")} from ${counted(files.length, "file")}; the profile is in ${resolve(out)}, which \`plan --profile\` and job files take`);
      }
    });
}
