import { formatMoment, ProblemError, type LauncherKind } from "@internevo/domain";
import { expect, it } from "vitest";
import type { InternEvoClient } from "@internevo/client";
import { profileCalling, profileId, resolveNamed, shortIds } from "./resolve.ts";

const ID = (start: string): string => `${start}${"0f8a2b1c-1111-4222-8333-444455556666".slice(start.length)}`;
const item = (start: string, name: string) => ({
  id: ID(start),
  name,
  createdAt: "2026-01-31T18:05:00.000Z",
});
const items = [
  item("ab12", "first"),
  item("ab34", "second"),
  item("cd00", "twice"),
  item("cd01", "twice"),
  item("ffff", "ab34"),
];
async function* listed() {
  yield* items;
}
const resolve = (text: string): Promise<string> => resolveNamed("job", text, "internevo ps", listed());
const problemOf = async (text: string): Promise<ProblemError> => {
  const error: unknown = await resolve(text).catch((reason: unknown) => reason);
  if (!(error instanceof ProblemError)) throw new Error(`not refused: ${String(error)}`);
  return error;
};

it.each([
  ["ab1", ID("ab12")],
  ["AB12", ID("ab12")],
  ["second", ID("ab34")],
  ["f", ID("ffff")],
  [ID("0000"), ID("0000")],
])("takes %s for what it names", async (text, id) => {
  expect(await resolve(text)).toBe(id);
});

it.each([
  ["ab", 2],
  ["twice", 2],
  ["cd0", 2],
  ["ab34", 2],
])("lists what %s may be", async (text, count) => {
  const problem = await problemOf(text);
  expect([problem.code, problem.message]).toEqual(["bad-request", `${text} names ${count} jobs`]);
  expect(problem.details).toHaveLength(count);
  for (const { message, remedy } of problem.details) {
    expect(message).toMatch(/^may be (first|second|twice|ab34) of /);
    expect(message.endsWith(` of ${formatMoment("2026-01-31T18:05:00.000Z")}`)).toBe(true);
    expect(await resolve(remedy.replace(/^give /, ""))).toMatch(/^[0-9a-f-]{36}$/);
  }
});

it.each([["ee"], ["third"], [""]])("says that %o names nothing", async (text) => {
  const problem = await problemOf(text);
  expect([problem.code, problem.details[0]?.field, problem.details[0]?.remedy]).toEqual([
    "not-found",
    "job",
    "see `internevo ps`",
  ]);
});

it("suggests the name that is near", async () => {
  const problem = await problemOf("frist");
  expect([problem.code, problem.details[0]?.remedy]).toEqual([
    "not-found",
    "did you mean first? Otherwise see `internevo ps`",
  ]);
});

it("takes a cluster's name for its newest profile, and asks which one where clusters share it", async () => {
  const profile = (start: string, name: string, clusterKey: string, project: string | null = null) => ({
    ...item(start, name),
    clusterKey,
    project,
    freshUntil: "2026-02-01T00:00:00.000Z",
    estimated: false,
    quality: null,
  });
  async function* profiles() {
    yield* [
      profile("a1", "here later", "local:here:1x2"),
      profile("a2", "here earlier", "local:here:1x2"),
      profile("a3", "there", "slurm:there:4x8:cuda"),
      profile("a4", "there", "local:there:1x2"),
      profile("a5", "given", "given:given"),
      profile("b1", "ours", "given:ours", "vision"),
      profile("b2", "ours", "given:ours", "nlp"),
      profile("b3", "ours", "given:ours", "nlp"),
      profile("b4", "ours", "given:ours"),
      profile("b5", "theirs", "given:theirs", "vision"),
      profile("b6", "theirs", "given:theirs", "nlp"),
    ];
  }
  const called = (
    text: string,
    project: string | null = null,
    launcher: LauncherKind | null = null,
  ): Promise<string> =>
    resolveNamed(
      "profile",
      text,
      "internevo profile list",
      profiles(),
      profileCalling(() => Promise.resolve(project), launcher),
    );
  expect(await Promise.all(["here", "here earlier", "given"].map((text) => called(text)))).toEqual([
    ID("a1"),
    ID("a2"),
    ID("a5"),
  ]);
  expect([await called("ours"), await called("ours", "nlp")], "its own project's first").toEqual([
    ID("b4"),
    ID("b2"),
  ]);
  await expect(called("theirs")).rejects.toMatchObject({ message: "theirs names 2 profiles" });
  await expect(called("there")).rejects.toMatchObject({
    code: "bad-request",
    message: "there names 2 profiles",
  });
  expect([await called("there", null, "slurm"), await called("there", null, "local")]).toEqual([
    ID("a3"),
    ID("a4"),
  ]);
  await expect(called("heer")).rejects.toMatchObject({
    details: [{ remedy: "did you mean here? Otherwise see `internevo profile list`" }],
  });
});

it("shortens ids as far as they stay apart", () => {
  const short = shortIds(["11112222-3333", "11112222-3344", "ffff0000-0000"]);
  expect([short("11112222-3333"), short("ffff0000-0000")]).toEqual(["11112222-333", "ffff0000-000"]);
  expect(shortIds(["11112222-3333"])("11112222-3333")).toBe("11112222");
});

it("says of a shipped profile that it is shipped, unless one of its name is stored", async () => {
  const named = (list: readonly unknown[]) =>
    profileId(
      {
        listProfiles: () => Promise.resolve({ items: list, nextCursor: null }),
      } as unknown as InternEvoClient,
      "a800-128",
      new AbortController().signal,
    );
  await expect(named([])).rejects.toThrow("profile a800-128 is shipped with InternEvo");
  await expect(named([])).rejects.toMatchObject({
    details: [{ message: "was not measured here: it can neither be discarded nor measured again" }],
  });
  expect(await named([{ ...item("ab12", "a800-128"), clusterKey: "given:1" }])).toBe(ID("ab12"));
});
