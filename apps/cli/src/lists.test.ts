import { expect, it } from "vitest";
import { cli } from "../test/in-process.ts";

it.each([
  [["pln"], /unknown command 'pln'\n\(Did you mean plan\?\)/],
  [["profile", "shwo"], /unknown command 'shwo'\n\(Did you mean show\?\)/],
  [["replan", "prposals", "x"], /unknown command 'prposals'\n\(Did you mean proposals\?\)/],
  [["profile", "nonsense"], /unknown command 'nonsense'\n\(see --help\)/],
])("says which command was meant: %j", async (args, said) => {
  const { status, stdout, stderr } = await cli(...args);
  expect([status, stdout]).toEqual([2, ""]);
  expect(stderr).toMatch(said);
  const json = JSON.parse((await cli("--json", ...args)).stderr) as {
    error: { code: string; message: string };
  };
  expect(json.error).toMatchObject({
    code: "bad-request",
    message: expect.stringContaining(
      `unknown command '${args.find((arg) => arg !== "profile" && arg !== "replan")}'`,
    ) as string,
  });
});
