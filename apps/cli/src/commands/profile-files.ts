import { basename, resolve } from "node:path";
import {
  diffProfiles,
  NCCL_TEST_PROGRAMS,
  parseCurvesCsv,
  parseNcclTests,
  parseProfileParts,
  withCurves,
  withParts,
} from "@internevo/profiles";
import { estimatedPoints, type Profile } from "@internevo/domain";
import { Option, type Command } from "commander";
import type { Context } from "../context.ts";
import { assertWritable, readText, writeWhole } from "../files.ts";
import { loadProfile } from "../named-profile.ts";
import { differenceText } from "../profile-difference.ts";

const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`;

interface ImportOptions {
  readonly into: string;
  readonly format: "nccl-tests" | "csv" | "profile";
  readonly op?: string;
  readonly name?: string;
  readonly out?: string;
}

export function addProfileFiles(profile: Command, context: Context): void {
  addDiff(profile, context);
  addImport(profile, context);
}

function addDiff(profile: Command, context: Context): void {
  profile
    .command("diff")
    .description("what two profiles measured differently, and whether that is more than their spread")
    .argument(
      "<first>",
      "a shipped profile, a file, or a stored profile: by its id, the beginning of it, its name or its cluster's",
    )
    .argument("<second>", "likewise; what it says is beside the first")
    .action(async (first: string, second: string) => {
      const [before, after] = [
        await loadProfile(first, "first", context),
        await loadProfile(second, "second", context),
      ];
      const output = context.output();
      const difference = diffProfiles(before, after);
      if (output.json) output.document({ first: before.name, second: after.name, ...difference });
      else output.data(differenceText(difference, [first, second], output.colors));
    });
}

/** Any parts of a profile, file by file: of what two files have the later one counts. */
async function importParts(
  files: readonly string[],
  base: Profile,
  out: string | undefined,
  context: Context,
): Promise<void> {
  let profile = base;
  for (const file of files) {
    const expected = {
      code: "profile-invalid",
      field: "files",
      what: "a part of a profile in JSON",
    } as const;
    profile = withParts(profile, file, parseProfileParts(await readText(file, expected), file));
  }
  const output = context.output();
  const document = JSON.stringify(profile, null, 2);
  if (out === undefined) return output.data(document);
  await writeWhole(out, `${document}\n`, "--out");
  const left = estimatedPoints(profile);
  const rest =
    left.estimated === 0 ? "" : `; ${left.estimated} of its ${left.all} points are still estimated`;
  output.note(`the profile is in ${resolve(out)}, which \`plan --profile\` and job files take${rest}`);
}

function addImport(profile: Command, context: Context): void {
  profile
    .command("import")
    .description(
      "put what was measured elsewhere into a profile, also into an estimated one, offline: curves of collectives, or any part of a profile",
    )
    .argument(
      "<files...>",
      "output or JSON reports of nccl-tests, one program each; or CSV with op,groupSize,placement,bytes,medianSeconds; or with --format profile JSON with any of device, modules, collectives, overlaps and slices, as `profile show --json` writes them",
    )
    .requiredOption(
      "--into <profile>",
      "the profile that says the rest: a shipped one, an estimated one, a file, or a stored one",
    )
    .addOption(
      new Option("--format <format>", "what the files are")
        .choices(["nccl-tests", "csv", "profile"])
        .default("nccl-tests"),
    )
    .option(
      "--op <program>",
      `which program of nccl-tests wrote the files, where they do not say: ${NCCL_TEST_PROGRAMS.join(", ")}`,
    )
    .option(
      "--name <name>",
      "name of the result; default: of the file that --out names, else of the profile it goes into",
    )
    .option("--out <file>", "write the result there; default: standard output")
    .action(async (files: readonly string[], { into, format, op, name, out }: ImportOptions) => {
      if (out !== undefined) await assertWritable(out, "--out");
      const base = await loadProfile(into, "--into", context);
      const written = out === undefined ? base.name : basename(out, ".json");
      const named = { ...base, name: name ?? written };
      if (format === "profile") return importParts(files, named, out, context);
      const imported = await Promise.all(
        files.map(async (file) => {
          const text = await readText(file, {
            code: "profile-invalid",
            field: "files",
            what:
              format === "csv"
                ? "a CSV file with the columns of `profile import --help`"
                : "what a program of nccl-tests printed, or its report",
          });
          return {
            file,
            ...(format === "csv"
              ? parseCurvesCsv(text, file)
              : parseNcclTests(text, { file, ...(op === undefined ? {} : { program: op }) })),
          };
        }),
      );
      const merged = withCurves(named, imported);
      const output = context.output();
      const document = JSON.stringify(merged, null, 2);
      if (out === undefined) output.data(document);
      else {
        await writeWhole(out, `${document}\n`, "--out");
        output.note(
          `${counted(
            imported.reduce((sum, { curves }) => sum + curves.length, 0),
            "curve",
          )} from ${counted(files.length, "file")}; the profile is in ${resolve(out)}, which \`plan --profile\` and job files take`,
        );
      }
    });
}
