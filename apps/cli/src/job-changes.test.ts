import { ProblemError } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { setArgument, unsetArgument, withChanges } from "./job-changes.ts";

const job = {
  name: "small",
  steps: 20,
  optimizer: { beta2: 0.95 },
  data: { format: "text", paths: ["/a", "/b"] },
  watchdog: false,
};
const set = (...texts: string[]) =>
  withChanges(
    job,
    texts.reduce((before, text) => setArgument(text, before), setArgument("name=small")),
  );
const unset = (field: string) => withChanges(job, unsetArgument(field));

describe("changes of a job file", () => {
  it("set fields to values in YAML, also such as are not there yet", () => {
    expect(
      set("steps=2000", "optimizer.peakLearningRate=1e-4", "labels.team=nlp", "plan=tp8 pp2"),
    ).toMatchObject({
      steps: 2000,
      optimizer: { beta2: 0.95, peakLearningRate: 1e-4 },
      labels: { team: "nlp" },
      plan: "tp8 pp2",
    });
    expect(set("data.paths=[/c, /d]")).toMatchObject({ data: { format: "text", paths: ["/c", "/d"] } });
    expect(set("data.paths.1=/c", "data.paths.2=/d")).toMatchObject({ data: { paths: ["/a", "/c", "/d"] } });
    expect(Object.hasOwn(set("__proto__.steps=1") as object, "__proto__")).toBe(true);
  });

  it("leave fields out", () => {
    expect(unset("optimizer.beta2")).toMatchObject({ optimizer: {} });
    expect(unset("watchdog")).not.toHaveProperty("watchdog");
    expect(unset("data.paths.0")).toMatchObject({ data: { paths: ["/b"] } });
  });

  it.each([
    ["set", "watchdog.stallSeconds=3", "is below false, which has no fields"],
    ["set", "data.paths.7=/c", "names no place of a list of 2"],
    ["set", "data.paths.first=/c", "names no place of a list of 2"],
    ["unset", "plan", "is not in the job's file"],
    ["unset", "data.paths.2", "names no place of a list of 2"],
  ])("are refused with field and remedy: %s %s", (kind, text, message) => {
    try {
      expect.unreachable(JSON.stringify(kind === "set" ? set(text) : unset(text)));
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      expect(error.details[0]).toMatchObject({ message, remedy: expect.stringMatching(/\w/) });
    }
  });

  it.each(["steps", "=1", "a..b=1", " steps=1"])("are no change: %s", (text) => {
    expect(() => setArgument(text)).toThrow(/give a field and its value/);
  });
});
