import { expect, it } from "vitest";
import { usageCsv } from "./projects.ts";

it("writes usage as CSV, with its head also where there is none", () => {
  expect(usageCsv({ by: "owner", rows: [] })).toBe("owner,gpuHours,jobs\r\n");
  const rows = [
    { key: "lin", gpuHours: 1.5, jobs: 2 },
    { key: null, gpuHours: 0, jobs: 1 },
  ];
  expect(usageCsv({ by: "owner", rows })).toBe("owner,gpuHours,jobs\r\nlin,1.5,2\r\n,0,1\r\n");
});
