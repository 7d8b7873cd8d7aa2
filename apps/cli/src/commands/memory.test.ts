import { expect, it } from "vitest";
import { totalsText, type Totals } from "./memory.ts";

const GIB = 2 ** 30;
const totals = (besideArena: Totals["besideArena"]): Totals => ({
  arenaBytes: 60 * GIB,
  programBytes: 2 * GIB,
  besideArena,
  checkpointStagingBytes: 0,
  totalBytes: 62 * GIB + Object.values(besideArena).reduce((sum, bytes) => sum + bytes, 0),
  totalAsPlannedBytes: 65 * GIB,
});

it("names every part of a rank's memory that lies outside the arena", () => {
  const profile = { name: "ours" };
  expect(totalsText(totals({ timeline: 0, communicators: 0 }), profile, "the same")).toBe(
    "with 2.00 GiB of the program itself, as the profile ours has it, 62.0 GiB; the same",
  );
  expect(totalsText(totals({ timeline: 0, communicators: 3 * GIB }), profile, "the same")).toBe(
    "with 2.00 GiB of the program itself, as the profile ours has it, and 3.00 GiB of communicator buffers, " +
      "65.0 GiB; the same",
  );
  const unknown = { ...totals({ timeline: 0, communicators: 3 * GIB }), programBytes: null };
  expect(totalsText({ ...unknown, totalBytes: 63 * GIB }, null, "")).toMatch(
    /^with 3\.00 GiB of communicator buffers, a rank needs more than these 63\.0 GiB: the program itself/,
  );
});
