import { refusalOf as problemOf, wholeJobFile as job } from "@internevo/test-kit/refused-job";
import { describe, expect, it } from "vitest";
import { resolveJob } from "../job-file.ts";

describe("plans that are tried beside the best", () => {
  const also = ["tp2", "b1 n1 pp1 dp8 sp1 ps8"];
  const cluster = { nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB" };
  const faultsOf = (over: Record<string, unknown>) => problemOf(job({ cluster, ...over })).details;

  it("are named by a part of a plan, or the whole", () => {
    expect(resolveJob(job({ cluster, trials: { also } })).trials).toMatchObject({ count: 10, also });
  });

  it.each([
    [
      "tp3",
      undefined,
      "its tensorParallel does not divide the 8 ranks of the cluster",
      /^give 2 or 4 as tensorParallel, or leave this entry out$/,
    ],
    ["zz3", undefined, "zz3 is not known", /./],
    [
      "tp2",
      "tp1 cp1",
      "the job's `plan` does not allow this tensorParallel",
      /^leave this entry out, or allow tensorParallel 2/,
    ],
    [
      "pp2",
      { pipelineParallel: [1, 4] },
      "the job's `plan` does not allow this pipelineParallel",
      /allow pipelineParallel 2 in/,
    ],
  ])("are refused where no plan has them: %s, of plans with %j", (text, plan, message, remedy) => {
    const faults = faultsOf({ trials: { also: ["dp2", text] }, ...(plan === undefined ? {} : { plan }) });
    expect(faults).toMatchObject([{ field: "trials.also[1]", value: text, message }]);
    expect(faults[0]?.remedy).toMatch(remedy);
  });
});
