import { ProblemError } from "@internevo/domain";
import { expect, it } from "vitest";
import { resolveNamed, shortIds } from "./resolve.ts";

const ID = (start: string): string => `${start}${"0f8a2b1c-1111-4222-8333-444455556666".slice(start.length)}`;
const item = (start: string, name: string) => ({ id: ID(start), name, createdAt: "2026-01-31T18:05:00.000Z" });
const items = [item("ab12", "first"), item("ab34", "second"), item("cd00", "twice"), item("cd01", "twice"), item("ffff", "ab34")];
async function* listed() {
  yield* items;
}
const resolve = (text: string): Promise<string> => resolveNamed("job", text, "internevo ps", listed());
const problemOf = async (text: string): Promise<ProblemError> => {
  const error: unknown = await resolve(text).catch((reason: unknown) => reason);
  if (!(error instanceof ProblemError)) throw new Error(`not refused: ${String(error)}`);
  return error;
};

it.each([["ab1", ID("ab12")], ["AB12", ID("ab12")], ["second", ID("ab34")], ["f", ID("ffff")], [ID("0000"), ID("0000")]])("takes %s for what it names", async (text, id) => {
  expect(await resolve(text)).toBe(id);
});

it.each([["ab", 2], ["twice", 2], ["cd0", 2], ["ab34", 2]])("lists what %s may be", async (text, count) => {
  const problem = await problemOf(text);
  expect([problem.code, problem.message]).toEqual(["bad-request", `${text} names ${count} jobs`]);
  expect(problem.details).toHaveLength(count);
  for (const { message, remedy } of problem.details) {
    expect(message).toMatch(/^may be (first|second|twice|ab34) of 2026-01-31 18:05:00Z$/);
    expect(await resolve(remedy.replace(/^give /, ""))).toMatch(/^[0-9a-f-]{36}$/);
  }
});

it.each([["ee"], ["third"], [""]])("says that %o names nothing", async (text) => {
  const problem = await problemOf(text);
  expect([problem.code, problem.details[0]?.field, problem.details[0]?.remedy]).toEqual(["not-found", "job", "see `internevo ps`"]);
});

it("suggests the name that is near", async () => {
  const problem = await problemOf("frist");
  expect([problem.code, problem.details[0]?.remedy]).toEqual(["not-found", "did you mean first? Otherwise see `internevo ps`"]);
});

it("shortens ids as far as they stay apart", () => {
  const short = shortIds(["11112222-3333", "11112222-3344", "ffff0000-0000"]);
  expect([short("11112222-3333"), short("ffff0000-0000")]).toEqual(["11112222-333", "ffff0000-000"]);
  expect(shortIds(["11112222-3333"])("11112222-3333")).toBe("11112222");
});
