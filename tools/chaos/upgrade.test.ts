import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { Stored } from "./src/random/judge.ts";
import type { Heard, HeardStep } from "./src/upgrade/followers.ts";
import { brokenByFollower, brokenByWebhook } from "./src/upgrade/judge.ts";
import { linkPackages, oldRevision, otherPackages } from "./src/upgrade/old-version.ts";
import { drawOrder } from "./src/upgrade/order.ts";

let directory: string;
beforeEach(() => void (directory = mkdtempSync(join(tmpdir(), "internevo-upgrade-test-"))));
afterEach(() => rmSync(directory, { recursive: true, force: true }));

it("every process is replaced once, in the same order for the same seed", () => {
  const drawn = drawOrder(["api", "planner", "profiler"], 2, 3, 5);
  expect(drawOrder(["api", "planner", "profiler"], 2, 3, 5)).toEqual(drawn);
  expect(drawOrder(["api", "planner", "profiler"], 2, 4, 5)).not.toEqual(drawn);
  expect(drawn.map(({ name, instance }) => `${name} ${instance}`).sort()).toEqual([
    "api 0",
    "api 1",
    "planner 0",
    "planner 1",
    "profiler 0",
    "profiler 1",
  ]);
  for (const { afterSeconds } of drawn) {
    expect(afterSeconds).toBeGreaterThanOrEqual(0);
    expect(afterSeconds).toBeLessThan(5);
  }
});

const stored: Stored = {
  state: "succeeded",
  reason: null,
  trials: [],
  steps: [3, 2, 1].map((loss, index) => ({ step: index + 1, loss, attempt: 1 })),
  attempts: 2,
  plans: { changes: [], attempts: [], run: null },
};
const told = (event: number, step: number, attempt = 1, loss = 4 - step): HeardStep => ({
  event,
  step,
  attempt,
  loss,
});
const heardOf = (...steps: HeardStep[]): Heard => ({
  name: "a follower",
  steps,
  outOfOrder: 0,
  reconnects: 0,
});

it("a follower may hear a step again of a later attempt, and must hear each", () => {
  expect(brokenByFollower(heardOf(told(1, 1), told(2, 2), told(3, 3)), stored)).toEqual([]);
  expect(brokenByFollower(heardOf(told(1, 1), told(2, 2), told(4, 2, 2), told(5, 3, 2)), stored)).toEqual([]);
  for (const [steps, words] of [
    [[told(1, 1), told(3, 3)], "a follower missed 1 steps: 2"],
    [[told(1, 1), told(2, 2), told(3, 2), told(4, 3)], "a follower was told steps of one attempt twice: 2"],
    [[told(1, 1), told(2, 2, 1, 9), told(3, 3)], "a follower was told another loss of steps 2"],
  ] as const)
    expect(brokenByFollower(heardOf(...steps), stored)).toEqual([words]);
  const backwards = { ...heardOf(told(1, 1), told(2, 2), told(3, 3)), outOfOrder: 1 };
  expect(brokenByFollower(backwards, stored)).toEqual(["a follower was told 1 events out of order"]);
});

it("a webhook must be told of every transition", () => {
  expect(brokenByWebhook(["a", "b"], new Set(["b", "a", "c"]))).toEqual([]);
  expect(brokenByWebhook(["a", "b"], new Set(["a"]))).toEqual(["the webhook was not told of b"]);
});

function repository(): { readonly git: (...args: string[]) => string; readonly commit: () => string } {
  const git = (...args: string[]): string =>
    execFileSync("git", ["-C", directory, "-c", "user.name=a", "-c", "user.email=a@b.c", ...args], {
      encoding: "utf8",
    }).trim();
  git("init", "--quiet");
  const commit = (): string => {
    git("commit", "--quiet", "--allow-empty", "-m", "a change");
    return git("rev-parse", "HEAD");
  };
  return { git, commit };
}

it("what is upgraded from is what is asked for, else the newest tag", async () => {
  const { git, commit } = repository();
  const first = commit();
  git("tag", "v1");
  commit();
  git("tag", "v2");
  const third = commit();
  expect(await oldRevision("v1", directory)).toMatchObject({ name: "v1", commit: first });
  expect(await oldRevision(third, directory)).toMatchObject({ commit: third });
  expect(await oldRevision(undefined, directory)).toMatchObject({
    name: "v2",
    because: "it is the newest tag",
  });
});

it("a revision that the clone lacks is named, with a remedy", async () => {
  repository().commit();
  await expect(oldRevision("v9", directory)).rejects.toThrow(
    /--from v9: this clone has no such revision .*git fetch --tags/,
  );
  // There is no tag, and this is not InternEvo's history.
  await expect(oldRevision(undefined, directory)).rejects.toThrow(/there is no tag/);
});

it("a tree of another version gets its own packages, and everybody else's from here", async () => {
  const write = (path: string, text: string): void => {
    mkdirSync(join(directory, path, ".."), { recursive: true });
    writeFileSync(join(directory, path), text);
  };
  write("here/node_modules/@internevo/store/index.js", "new");
  write("here/node_modules/pg/index.js", "pg");
  write("here/apps/api/node_modules/ajv/index.js", "ajv of the api");
  write("old/libs/store/package.json", JSON.stringify({ name: "@internevo/store" }));
  write("old/libs/store/index.js", "old");
  write("old/apps/api/package.json", JSON.stringify({ name: "@internevo/api" }));
  const tree = join(directory, "old");
  await linkPackages(tree, join(directory, "here"));
  const read = (path: string): string => readFileSync(join(tree, path), "utf8");
  expect(read("node_modules/@internevo/store/index.js")).toBe("old");
  expect(read("node_modules/pg/index.js")).toBe("pg");
  expect(read("apps/api/node_modules/ajv/index.js")).toBe("ajv of the api");
  expect(realpathSync(join(tree, "node_modules/@internevo/api"))).toBe(realpathSync(join(tree, "apps/api")));
});

it("packages of another version than here are named", () => {
  const old = {
    packages: {
      "": { version: "0.1.0" },
      "node_modules/pg": { version: "8.0.0" },
      "node_modules/same": { version: "1.0.0" },
      "node_modules/gone": { version: "2.0.0" },
      "node_modules/@internevo/store": { link: true },
    },
  };
  const here = {
    packages: { "node_modules/pg": { version: "8.1.0" }, "node_modules/same": { version: "1.0.0" } },
  };
  expect(otherPackages(old, here)).toEqual(["pg 8.0.0, here 8.1.0", "gone 2.0.0, here none"]);
});
