import { link, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { aJob } from "@internevo/test-kit";
import { writeMegatron } from "@internevo/test-kit/data-writers";
import { afterEach, beforeEach, expect, it } from "vitest";
import { acceptJob, type JobChecks } from "./accept-job.ts";
import { checkData } from "./check-data.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-accept-"));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

const checks: JobChecks = {
  project: async () => {},
  cluster: () => Promise.resolve(),
  profile: () => Promise.resolve(),
  fit: () => Promise.resolve(),
  room: () => Promise.resolve(),
  data: (task) => checkData({ ...task, roots: null, own: undefined }),
  weights: () => Promise.resolve(undefined),
};
const documents = Array.from({ length: 40 }, (_, i) => Array.from({ length: 8 * (i % 3) + 8 }, () => i));

it("counts the documents of a job that packs them in its own data, and of no other", async () => {
  const path = await writeMegatron(join(directory, "data"), documents);
  const submitted = (data: object) =>
    acceptJob(aJob({ data: { format: "megatron", path, ...data } }), checks);
  const {
    spec: { documents: counted },
    dataTokens,
  } = await submitted({ packing: "documents" });
  expect(dataTokens).toBe(632);
  // 632 tokens are four sequences of 128 and more; documents of 16 on average.
  expect(counted).toMatchObject({ sequenceLengthTokens: 128, sequences: 4 });
  expect(counted?.keysShare).toBeLessThan(0.25);
  expect(counted?.rings.map(({ ranks }) => ranks)).toEqual([1, 2]);
  expect((await submitted({})).spec).not.toHaveProperty("documents");
});

it("refuses packed documents of data that is damaged, and counts nothing", async () => {
  await expect(
    acceptJob(
      aJob({ data: { format: "tokens", path: join(directory, "none"), packing: "documents" } }),
      checks,
    ),
  ).rejects.toThrow("does not exist");
});

it("refuses held-out data that is trained on by another name", async () => {
  const text = join(directory, "text.txt");
  await writeFile(text, "It was a dark and stormy night. ".repeat(100_000));
  await symlink(text, join(directory, "link.txt"));
  await link(text, join(directory, "hard.txt"));
  const submitted = (name: string) =>
    acceptJob(
      aJob({
        data: { format: "text", paths: [text] },
        validation: { data: { format: "text", paths: [`${directory}/${name}`] } },
      }),
      checks,
    );
  for (const name of ["link.txt", "hard.txt"])
    await expect(submitted(name)).rejects.toMatchObject({
      code: "data-invalid",
      details: [
        {
          field: "validation.data.paths.0",
          message: `is trained on: it is the same file as ${text} in data`,
        },
      ],
    });
  await expect(submitted("./text.txt")).rejects.toMatchObject({ code: "job-invalid" });
  await writeFile(join(directory, "other.txt"), "It was a bright cold day in April. ".repeat(100_000));
  await submitted("other.txt");
});
