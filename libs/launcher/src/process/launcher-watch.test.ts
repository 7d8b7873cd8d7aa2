import { spawn } from "node:child_process";
import { once } from "node:events";
import { afterEach, expect, it } from "vitest";
import { eventually } from "@internevo/test-kit";
import { watchLauncher } from "./launcher-watch.ts";
import { hadChildren, hasCompany } from "./processes.ts";

const ends: (() => void)[] = [];
afterEach(() => {
  for (const end of ends.splice(0)) end();
});

/** A shell that leads a session, as mpirun does. */
function leader(script: string): number {
  const child = spawn("bash", ["-c", script], { detached: true, stdio: "ignore" });
  ends.push(() => process.kill(-(child.pid as number), "SIGKILL"));
  return child.pid as number;
}

/** Whether the watch has called. */
function watched(pid: number): { alone: boolean } {
  const seen = { alone: false };
  ends.push(
    watchLauncher(
      pid,
      () => false,
      () => (seen.alone = true),
    ),
  );
  return seen;
}

it("notices a launcher whose ranks came and went, without a word, before anybody looked", async () => {
  const pid = leader("/bin/true; exec sleep 1000");
  await eventually("the end of its child", () => hadChildren(pid) && !hasCompany(pid));
  const seen = watched(pid);
  await eventually("that the launcher is alone", () => seen.alone, 15);
});

it("waits for a launcher that has not started its ranks yet", async () => {
  const pid = leader("exec sleep 1000");
  const seen = watched(pid);
  const child = spawn("sleep", ["7"]);
  await once(child, "exit");
  expect([seen.alone, hadChildren(pid)]).toEqual([false, false]);
});

it("leaves a launcher alone whose ranks run", async () => {
  const pid = leader("/bin/true; sleep 1000 & wait");
  await eventually("a rank", () => hadChildren(pid) && hasCompany(pid));
  const seen = watched(pid);
  const child = spawn("sleep", ["7"]);
  await once(child, "exit");
  expect(seen.alone).toBe(false);
});
