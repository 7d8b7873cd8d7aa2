import { resolveJob } from "@internevo/domain";
import { expect, it } from "vitest";
import { doesNotFit } from "./does-not-fit.ts";

const spec = resolveJob({
  name: "small",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 65_536,
  cluster: { name: "here", nodes: 1, gpusPerNode: 8, memoryPerGpu: "8MiB" },
});

it("says in units, in words and with a field of the job what does not fit", () => {
  const said =
    "the plan needs 11534336 bytes a rank; memoryLimitBytes is 8388608: parameters 1048576, " +
    "optimizerStates 4194304, gradients 2097152, activations 0, ropeTables 1024, inputTokens 1024, runtime 4192256";
  const problem = doesNotFit(said, spec);
  expect(problem).toMatchObject({
    code: "no-feasible-plan",
    message: "the plan does not fit: it needs 11.0 MiB a rank, 3.00 MiB more than a GPU has",
    details: [
      {
        field: "cluster.memoryPerGpu",
        value: "8MiB",
        message:
          "is too little for optimizer states 4.00 MiB, runtime 4.00 MiB, gradients 2.00 MiB, " +
          "parameters 1.00 MiB, all else 2.00 KiB",
      },
    ],
  });
  expect(doesNotFit("something else", spec)).toBeUndefined();
});
