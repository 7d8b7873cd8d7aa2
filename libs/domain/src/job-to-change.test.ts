import { jobFileCase } from "@internevo/test-kit/job-file-cases";
import fc from "fast-check";
import { expect, it } from "vitest";
import {
  jobToChange,
  JobFileSchema,
  resolveJob,
  statedFields,
  writtenJob,
  type JobFile,
  type JobSpec,
} from "./index.ts";

const written = {
  name: "job",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 4096,
  cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: "80GB" },
};

it("stands for the same job again, of any job file", () => {
  fc.assert(
    fc.property(jobFileCase, (file) => {
      const spec = resolveJob(file);
      for (const stated of [[], statedFields(file as unknown as JobFile)]) {
        const again = JSON.parse(JSON.stringify(jobToChange(spec, stated))) as JobFile;
        const { measureAgain: _, ...measuredOnce } = spec;
        expect(resolveJob(again)).toEqual(spec.until === "profiling" ? spec : measuredOnce);
        expect(statedFields(again)).toEqual(expect.arrayContaining(stated));
      }
    }),
  );
});

/** Paths of a schema's fields, in all alternatives. */
function pathsOf(schema: object, path = ""): string[] {
  const { properties = {}, anyOf = [] } = schema as { properties?: object; anyOf?: object[] };
  return [
    ...anyOf.flatMap((one) => pathsOf(one, path)),
    ...Object.entries(properties).flatMap(([name, inner]) => {
      const field = path === "" ? name : `${path}.${name}`;
      return [field, ...pathsOf(inner as object, field)];
    }),
  ];
}

it("was tried with every field that a job file may have", () => {
  const seen = new Set<string>();
  const look = (value: unknown, path: string): void => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return;
    for (const [name, inner] of Object.entries(value)) {
      const field = path === "" ? name : `${path}.${name}`;
      seen.add(field);
      look(inner, field);
    }
  };
  for (const file of fc.sample(jobFileCase, { numRuns: 2000, seed: 1 })) look(file, "");
  // What a plan may fix is tried by the tests of plans; of scaled positions there are other kinds.
  const unseen = pathsOf(JobFileSchema).filter(
    (path) => !seen.has(path) && !/^(plan|model\.ropeScaling)\./.test(path),
  );
  expect(unseen).toEqual([]);
});

it("lets what follows from other fields follow a change of them", () => {
  const spec = resolveJob({ ...written, steps: 100 });
  expect(writtenJob(spec)).toMatchObject({ optimizer: { decaySteps: 100 } });
  // As a database may give it back.
  const { everySteps, keepLast } = spec.checkpointing ?? {};
  const stored = { ...spec, checkpointing: { keepLast, everySteps } } as JobSpec;
  expect(
    Object.keys(jobToChange(Object.fromEntries(Object.entries(stored).reverse()) as JobSpec, [])),
  ).toEqual(Object.keys(JobFileSchema.properties).filter((field) => field in jobToChange(spec, [])));
  const changed = resolveJob({ ...jobToChange(stored, []), steps: 2000 });
  expect(changed).toEqual(resolveJob({ ...written, steps: 2000 }));
  expect(changed).toMatchObject({
    optimizer: { decaySteps: 2000, warmupSteps: 100 },
    checkpointing: { everySteps: 200 },
  });
});

it("does not ask to measure again, but where the job does nothing else", () => {
  const spec = resolveJob({ ...written, measureAgain: true });
  expect(jobToChange(spec, [])).toEqual(jobToChange(resolveJob(written), []));
  const measures = resolveJob({ ...written, measureAgain: true, until: "profiling" });
  expect(jobToChange(measures, [])).toMatchObject({ measureAgain: true, until: "profiling" });
  // One that breaks a rule of today is written whole, but for that.
  expect(jobToChange({ ...spec, globalBatchTokens: 5000 }, [])).not.toHaveProperty("measureAgain");
});

it("keeps what somebody chose", () => {
  const spec = resolveJob({ ...written, steps: 100, optimizer: { decaySteps: 50 } });
  expect(resolveJob({ ...jobToChange(spec, []), steps: 2000 })).toMatchObject({
    optimizer: { decaySteps: 50, warmupSteps: 50 },
    checkpointing: { everySteps: 200 },
  });
});

it("keeps what somebody chose though it was the default", () => {
  const file = { ...written, steps: 200, optimizer: { peakLearningRate: 0.003, warmupSteps: 10 } };
  const spec = resolveJob(file);
  expect(statedFields(file)).toEqual(["optimizer.warmupSteps"]);
  expect(resolveJob({ ...jobToChange(spec, statedFields(file)), steps: 2000 })).toMatchObject({
    optimizer: { warmupSteps: 10, decaySteps: 2000 },
  });
  expect(resolveJob({ ...jobToChange(spec, []), steps: 2000 })).toMatchObject({
    optimizer: { warmupSteps: 100, decaySteps: 2000 },
  });
});

it("lets a field of checkpointing follow beside one that somebody chose", () => {
  const clone = (file: JobFile, stated = statedFields(file)) =>
    resolveJob({ ...jobToChange(resolveJob(file), stated), steps: 2000 }).checkpointing;
  const keeps: JobFile = { ...written, steps: 100, checkpointing: { keepLast: 5 } };
  expect(clone(keeps)).toEqual({ everySteps: 200, keepLast: 5 });
  const comes: JobFile = { ...written, steps: 100, checkpointing: { everySteps: 10 } };
  expect(clone(comes)).toEqual({ everySteps: 10, keepLast: 2 });
  expect(jobToChange(resolveJob({ ...written, steps: 100 }), [])).not.toHaveProperty("checkpointing");
  // As a job of before has it, whose file stated both.
  expect(clone({ ...comes, checkpointing: { everySteps: 10, keepLast: 2 } }, ["checkpointing"])).toEqual({
    everySteps: 10,
    keepLast: 2,
  });
});

it("tells what a file states from what it leaves out", () => {
  expect(statedFields(written)).toEqual([]);
  expect(
    statedFields({
      ...written,
      timeline: true,
      checkpointing: { everySteps: 10, keepLast: 2 },
      cluster: { ...written.cluster, name: "1x1" },
    }),
  ).toEqual(["checkpointing.everySteps", "checkpointing.keepLast", "cluster.name"]);
});

it("writes a job whole that breaks a rule of today", () => {
  const old: JobSpec = { ...resolveJob(written), globalBatchTokens: 5000 };
  expect(jobToChange(old, [])).toEqual(writtenJob(old));
});

it("reads none of the paths, however many there are", () => {
  let looks = 0;
  const counted = (name: string) =>
    new Proxy(
      Array.from({ length: 5000 }, (_, index) => `/${name}/${index}`),
      {
        get: (list, key, receiver) => {
          looks += 1;
          return Reflect.get(list, key, receiver) as unknown;
        },
      },
    );
  const text = (paths: string[]) => ({ format: "text" as const, paths });
  const spec = resolveJob({
    ...written,
    data: text(["/a"]),
    validation: { data: text(["/b"]), everySteps: 10 },
  });
  const many = {
    ...spec,
    data: text(counted("a")),
    validation: { ...spec.validation!, data: text(counted("b")) },
  };
  expect(jobToChange(many, [])).toEqual({
    ...jobToChange(spec, []),
    data: many.data,
    validation: { batches: 8, data: many.validation.data },
  });
  const before = looks;
  jobToChange(many, []);
  expect(looks - before).toBe(0);
});
