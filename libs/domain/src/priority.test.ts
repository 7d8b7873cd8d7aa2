import { expect, it } from "vitest";
import { aJob } from "@internevo/test-kit";
import { resolveJob } from "./job-file.ts";
import { writtenJob } from "./written-job.ts";

it("reads priority and labels, and writes them again", () => {
  const spec = resolveJob(aJob({ priority: "high", labels: { team: "nlp", "cost/centre": "7 b" } }));
  expect(spec).toMatchObject({ priority: "high", labels: { team: "nlp", "cost/centre": "7 b" } });
  expect(resolveJob(writtenJob(spec))).toEqual(spec);
  expect(resolveJob(aJob({ priority: "normal" }))).toEqual(resolveJob(aJob()));
  expect(resolveJob(aJob({ preemptible: true })).preemptible).toBe(true);
  expect(resolveJob(aJob({ preemptible: false }))).toEqual(resolveJob(aJob()));
});

it.each([
  [{ priority: "urgent" }, "priority"],
  [{ labels: { "": "x" } }, "labels"],
  [{ labels: { "a=b": "x" } }, "labels"],
  [{ labels: { team: "" } }, "labels"],
  [{ labels: { team: "a\nb" } }, "labels"],
  [{ labels: Object.fromEntries(Array.from({ length: 17 }, (_, index) => [`l${index}`, "x"])) }, "labels"],
])("refuses %j", (over, field) => {
  expect(() => resolveJob(aJob(over))).toThrow(
    expect.objectContaining({
      details: expect.arrayContaining([expect.objectContaining({ field: expect.stringContaining(field) })]),
    }) as Error,
  );
});
