import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { InternEvoClient } from "@internevo/client";
import { startLocalStack, type LocalStack } from "@internevo/local-stack";
import { createTestDatabase, testStack, type TestDatabase } from "@internevo/local-stack/test-stack";
import { afterAll, beforeAll, expect, it } from "vitest";

let database: TestDatabase;
let directory: string;
let stack: LocalStack;
beforeAll(async () => {
  database = await createTestDatabase();
  directory = await mkdtemp(join(tmpdir(), "internevo-memory-"));
  const entry = join(import.meta.dirname, "..", "src", "main.ts");
  stack = await startLocalStack({
    dataDirectory: directory,
    databaseUrl: database.url,
    natsUrl: testStack().natsUrl,
    namespace: `memory-${process.pid}`,
    services: [{ name: "api", entry, env: { INTERNEVO_API_IDLE_THREAD_SECONDS: "1" } }],
  });
}, 120_000);
afterAll(async () => {
  await stack.stop();
  await database.drop();
  await rm(directory, { recursive: true });
});

/** Memory of the API's process that is in use, MiB. */
function residentMebibytes(): number {
  const status = readFileSync(`/proc/${stack.pidOf("api") ?? 0}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024;
}

const STILL_MILLISECONDS = 12_000;

/** The memory once it has stopped to fall: a start leaves garbage too, which V8 collects when nothing happens for some seconds. */
async function settledMebibytes(): Promise<number> {
  let lowest = residentMebibytes();
  for (let since = performance.now(); performance.now() - since < STILL_MILLISECONDS;) {
    await sleep(250);
    const now = residentMebibytes();
    if (now >= lowest * 0.99) continue;
    lowest = now;
    since = performance.now();
  }
  return lowest;
}

it("gives the memory of a burst of searches back", { timeout: 300_000 }, async () => {
  const { apiUrl, apiToken } = stack.info();
  if (apiUrl === null) throw new Error("the API did not say where it is");
  const client = new InternEvoClient({ baseUrl: apiUrl, token: apiToken });
  const job = (sequences: number) => ({
    name: "burst",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: sequences * 4096,
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
  });
  // What is loaded with the first request is no part of a burst.
  await client.whoami();
  await client.listJobs();
  const idle = await settledMebibytes();
  let highest = 0;
  const watch = setInterval(() => (highest = Math.max(highest, residentMebibytes())), 50);
  await Promise.all([
    ...Array.from({ length: 12 }, (_, at) => client.plan({ job: job(1024 * (at + 1)), profile: "a800-128" })),
    ...Array.from({ length: 4 }, (_, at) =>
      client.sweep({
        job: job(1024 * (at + 1)),
        profile: "a800-128",
        axis: "sequence",
        values: [4096, 8192],
      }),
    ),
  ]);
  clearInterval(watch);
  expect(highest).toBeGreaterThan(1.5 * idle);
  const until = performance.now() + 120_000;
  let now = residentMebibytes();
  for (; now > 1.3 * idle && performance.now() < until; now = residentMebibytes()) await sleep(500);
  process.stderr.write(
    `memory of the API: ${idle.toFixed(0)} MiB idle, ${highest.toFixed(0)} MiB in the burst, ${now.toFixed(0)} MiB after it\n`,
  );
  expect(now).toBeLessThanOrEqual(1.3 * idle);
});
