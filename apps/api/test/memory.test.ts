import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { InternEvoClient } from "@internevo/client";
import { startLocalStack, type LocalStack } from "@internevo/local-stack";
import { eventually } from "@internevo/test-kit";
import { createTestDatabase, testStack, type TestDatabase } from "@internevo/test-kit/stack";
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

/** An API that has loaded everything and has nothing to do is below it, MiB: 190 to 215, by what its start left. */
const IDLE_MEBIBYTES = 230;

/** Memory of the API's process that is in use, MiB. */
function residentMebibytes(): number {
  const status = readFileSync(`/proc/${stack.pidOf("api") ?? 0}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024;
}

/** V8 collects what a start or a burst leaves once nothing happens for some seconds; on a busy machine, much later. */
const fallsBelow = (mebibytes: number): Promise<number> =>
  eventually(
    `less than ${mebibytes.toFixed(0)} MiB in use`,
    () => {
      const now = residentMebibytes();
      return now < mebibytes && now;
    },
    180,
    () => `${residentMebibytes().toFixed(0)} MiB are in use`,
  );

/** What one burst asks is asked by no other: nothing of it is answered from memory. */
async function burst(client: InternEvoClient, number: number): Promise<void> {
  const job = (at: number) => ({
    name: "burst",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 1024 * (12 * number + at + 1) * 4096,
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
  });
  await Promise.all([
    ...Array.from({ length: 12 }, (_, at) => client.plan({ job: job(at), profile: "a800-128" })),
    ...Array.from({ length: 4 }, (_, at) =>
      client.sweep({ job: job(at), profile: "a800-128", axis: "sequence", values: [4096, 8192] }),
    ),
  ]);
}

it("gives the memory of bursts of searches back", { timeout: 900_000 }, async () => {
  const { apiUrl, apiToken } = stack.info();
  if (apiUrl === null) throw new Error("the API did not say where it is");
  const client = new InternEvoClient({ baseUrl: apiUrl, token: apiToken });
  // What is loaded with the first request is no part of a burst.
  await client.whoami();
  await client.listJobs();
  // V8 would take 128 MiB for the young objects of a process that has little to do.
  const idle = await fallsBelow(IDLE_MEBIBYTES);
  let highest = 0;
  const watch = setInterval(() => (highest = Math.max(highest, residentMebibytes())), 50);
  const settled: number[] = [];
  try {
    for (const number of [0, 1, 2, 3]) {
      await burst(client, number);
      // The bound is the same after each: what every burst leaves behind adds up.
      settled.push(await fallsBelow(1.25 * IDLE_MEBIBYTES));
    }
  } finally {
    clearInterval(watch);
  }
  process.stderr.write(
    `memory of the API: ${idle.toFixed(0)} MiB idle, ${highest.toFixed(0)} MiB in bursts, ${settled.map((one) => one.toFixed(0)).join(", ")} MiB after each\n`,
  );
  expect(highest).toBeGreaterThan(1.5 * IDLE_MEBIBYTES);
});
