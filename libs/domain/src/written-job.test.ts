import { jobFileCase } from "@internevo/test-kit/job-file-cases";
import fc from "fast-check";
import { expect, it } from "vitest";
import { resolveJob, writtenJob, type JobSpec } from "./index.ts";

const job = { name: "job", model: "llama-7b", cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: "80GB" } };
const small = { ...job, sequenceLengthTokens: 4096, globalBatchTokens: 4096 };

it("stands for the same job again, of any job file, and is the same text the second time", () => {
  fc.assert(
    fc.property(jobFileCase, (written) => {
      const spec = resolveJob(written);
      const document = JSON.parse(JSON.stringify(writtenJob(spec))) as unknown;
      expect(resolveJob(document)).toEqual(spec);
      expect(writtenJob(resolveJob(document))).toEqual(document);
    }),
  );
});

it("writes units, and leaves out what a job file cannot name", () => {
  const document = writtenJob(resolveJob(small));
  expect(document.cluster).toEqual({
    name: "1x1",
    nodes: 1,
    gpusPerNode: 1,
    memoryPerGpu: "80GB",
    launcher: "local",
  });
  expect(document).not.toHaveProperty("data");
  const uncheckpointed: JobSpec = { ...resolveJob(small), checkpointing: null };
  expect(writtenJob(uncheckpointed)).not.toHaveProperty("checkpointing");
});
