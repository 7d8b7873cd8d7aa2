import { expect, it } from "vitest";
import { aJob } from "@internevo/test-kit";
import { resolveJob } from "./job-file.ts";
import { HEAD_START_HOURS, placeInQueue, PRIORITIES } from "./priority.ts";
import { writtenJob } from "./written-job.ts";

const hours = (count: number): Date => new Date(Date.UTC(2026, 0, 10) + count * 3_600_000);

it("lets a job pass those of a day before it, and nobody for longer", () => {
  expect(placeInQueue(hours(23), "high") < placeInQueue(hours(0))).toBe(true);
  expect(placeInQueue(hours(25), "high") > placeInQueue(hours(0))).toBe(true);
  expect(placeInQueue(hours(0), "low") > placeInQueue(hours(23))).toBe(true);
  // Whoever waited for longer than the widest head start is passed by nobody.
  const widest = HEAD_START_HOURS.high - HEAD_START_HOURS.low;
  for (const priority of PRIORITIES)
    expect(placeInQueue(hours(0), "low") <= placeInQueue(hours(widest), priority)).toBe(true);
});

it("reads priority and labels, and writes them again", () => {
  const spec = resolveJob(aJob({ priority: "high", labels: { team: "nlp", "cost/centre": "7 b" } }));
  expect(spec).toMatchObject({ priority: "high", labels: { team: "nlp", "cost/centre": "7 b" } });
  expect(resolveJob(writtenJob(spec))).toEqual(spec);
  expect(resolveJob(aJob({ priority: "normal" }))).toEqual(resolveJob(aJob()));
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
