import { expect, it } from "vitest";
import { csvText } from "./csv.ts";

it("writes what spreadsheets read, and nothing that they compute", () => {
  expect(
    csvText([
      { value: 4096, plan: "b1 n2", reason: null },
      { value: -1.5, plan: 'a "b", c', reason: "=1+1" },
    ]),
  ).toBe('value,plan,reason\r\n4096,b1 n2,\r\n-1.5,"a ""b"", c",\'=1+1\r\n');
  expect(csvText([])).toBe("\r\n");
});
