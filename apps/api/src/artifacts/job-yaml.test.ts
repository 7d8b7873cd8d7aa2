import { resolveJob, writtenJob } from "@internevo/domain";
import { wholeJobFile } from "@internevo/test-kit/refused-job";
import { expect, it } from "vitest";
import { parse, stringify } from "yaml";
import { jobYaml } from "./job-yaml.ts";

const many = (name: string): string[] =>
  Array.from({ length: 30 }, (_, index) => `/data/${name}-${index}.txt`);
const fileOf = (over: Record<string, unknown>) => writtenJob(resolveJob(wholeJobFile(over)));

it("is what the library writes, of long lists of paths too", () => {
  const source = (paths: string[]) => ({ format: "text", paths, weight: 1 });
  for (const over of [
    {},
    {
      data: { format: "text", paths: many("a") },
      validation: { data: { format: "text", paths: many("b") } },
    },
    { data: { format: "mixture", sources: [source(many("a")), source(["/b"]), source(many("c"))] } },
    { plan: { microBatchSize: Array.from({ length: 12 }, (_, power) => 2 ** power) } },
  ]) {
    const file = fileOf(over);
    expect(jobYaml(file)).toBe(stringify(file));
  }
});

it("reads as the same job again, whatever its paths are", () => {
  const odd = [
    "/a b",
    "/c: d",
    "/é",
    "/#e",
    "relative",
    "- f",
    "true",
    "1",
    "~",
    '/"g"',
    "/🙂",
    "/h\\i",
    "[j]",
  ];
  // A database may have the paths first.
  const source = { paths: odd, weight: 1, format: "text" };
  for (const data of [
    { format: "text", paths: odd },
    { format: "mixture", sources: [source] },
  ]) {
    const file = fileOf({ data });
    expect(parse(jobYaml(file))).toEqual(file);
  }
});
