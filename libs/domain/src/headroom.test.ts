import { describe, expect, it } from "vitest";
import { plannedMemoryBytes, readHeadroom, withHeadroom, withoutHeadroom } from "./headroom.ts";
import { resolveJob } from "./job-file.ts";
import type { ProblemError } from "./problem.ts";

const written = {
  name: "roomy",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 16 * 4096,
  cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB", profile: "a800-128" },
};

describe("a job's headroom", () => {
  it.each([
    [undefined, 80e9],
    ["5%", 76e9],
    ["4GB", 76e9],
  ])("%j leaves plans %d bytes of a GPU", (headroom, bytes) => {
    const job = resolveJob({ ...written, headroom });
    expect(job.cluster.memoryPerGpuBytes).toBe(80e9);
    expect(plannedMemoryBytes(job)).toBe(bytes);
    expect(withoutHeadroom(job)).toMatchObject({ cluster: { memoryPerGpuBytes: bytes } });
    expect(withoutHeadroom(job)).not.toHaveProperty("headroom");
  });

  it("gives way to the one that is asked for, which is of the whole GPU", () => {
    const job = withHeadroom(resolveJob({ ...written, headroom: "50%" }), readHeadroom("10%"), "--headroom");
    expect(plannedMemoryBytes(job)).toBe(72e9);
  });

  it.each([
    ["100%", /neither a share nor a size/],
    ["much", /neither a share nor a size/],
    ["5", /neither a share nor a size/],
    ["80GB", /is all of the 74\.5 GiB of a GPU/],
  ])("is not %j", (headroom, message) => {
    let fault: ProblemError | undefined;
    try {
      resolveJob({ ...written, headroom });
    } catch (error) {
      fault = error as ProblemError;
    }
    expect(fault?.details).toMatchObject([{ field: "headroom", value: headroom }]);
    expect(fault?.details[0]?.message).toMatch(message);
  });

  it("is not a number, which has no unit", () => {
    // Beside another fault, which the schema tells, too.
    expect(() => resolveJob({ ...written, headroom: 5, stesp: 60 })).toThrow(
      expect.objectContaining({
        details: expect.arrayContaining([
          expect.objectContaining({ field: "stesp" }),
          expect.objectContaining({ field: "headroom" }),
        ]),
      }),
    );
    expect(() => resolveJob({ ...written, headroom: 5 })).toThrow(
      expect.objectContaining({
        details: [
          {
            field: "headroom",
            value: "5",
            message: "is neither a share nor a size",
            remedy: expect.stringContaining("such as 5%, or a size with its unit, such as 4GB") as string,
          },
        ],
      }),
    );
  });
});
