// Attacks the API as one token may, and says what others notice: how long their small requests take, and how much
// memory the API's process has. Prints JSON. usage: npm run chaos -- flood [--seconds 10]
// [--attacks none,forty,downloads,half-sent,posts,searches]
import { fork, type ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { productServices } from "@internevo/local-stack";
import type { Attack } from "./src/flood/attack.ts";
import { attackOf, ATTACKS, largeProfile, type AttackName } from "./src/flood/requests.ts";
import { withStack } from "./src/harness.ts";
import { wholeNumber } from "./src/whole-number.ts";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "10" },
    attacks: { type: "string", default: "none,forty,downloads,half-sent" },
  },
});
const seconds = wholeNumber("--seconds", values.seconds, 1);
const names = values.attacks.split(",").map((name): AttackName => {
  const attack = ATTACKS.find((each) => each === name);
  if (attack === undefined) throw new Error(`--attacks: ${name} is none of ${ATTACKS.join(", ")}`);
  return attack;
});
/** What is freed after an attack is freed by then. */
const REST_SECONDS = 8;
const PAUSE_MS = 50;

const agent = new Agent({ keepAlive: true, maxSockets: 64 });
function milliseconds(url: string, token: string): Promise<number> {
  const begin = performance.now();
  return new Promise((resolve, reject) => {
    request(url, { agent, headers: { authorization: `Bearer ${token}` } }, (response) => {
      response.resume();
      response.once("end", () =>
        response.statusCode === 200
          ? resolve(performance.now() - begin)
          : reject(new Error(`${url} was answered with ${response.statusCode}`)),
      );
    })
      .once("error", reject)
      .end();
  });
}

const quantile = (sorted: readonly number[], part: number): number =>
  Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0);

interface Noticed {
  readonly milliseconds: number[];
  failed: number;
  highestMebibytes: number;
}

/** Small requests of somebody else, while an attack goes on. */
async function notice(api: { url: string; token: string; memory: () => number }): Promise<Noticed> {
  const noticed: Noticed = { milliseconds: [], failed: 0, highestMebibytes: 0 };
  const measure = (): void => {
    noticed.highestMebibytes = Math.max(noticed.highestMebibytes, api.memory());
  };
  const asked: Promise<unknown>[] = [];
  for (const deadline = performance.now() + seconds * 1000; performance.now() < deadline;) {
    const path = asked.length % 2 === 0 ? "whoami" : "jobs";
    asked.push(
      milliseconds(`${api.url}/api/v1/${path}`, api.token).then(
        (took) => noticed.milliseconds.push(took),
        () => (noticed.failed += 1),
      ),
    );
    measure();
    await sleep(PAUSE_MS);
  }
  await Promise.all(asked);
  measure();
  noticed.milliseconds.sort((a, b) => a - b);
  return noticed;
}

/** @returns how to end it, with the answers that it got by status */
function begin(attack: Attack | undefined): () => Record<string, number> {
  if (attack === undefined) return () => ({});
  const child: ChildProcess = fork(new URL("./src/flood/attack.ts", import.meta.url));
  let statuses: Record<string, number> = {};
  child.on("message", (said) => (statuses = said as Record<string, number>));
  child.on("error", (error) => console.error(`the attack: ${error.message}`));
  child.send(attack);
  return () => {
    child.disconnect();
    return statuses;
  };
}

const rows = await withStack(
  async ({ stack, client }) => {
    const { apiUrl, apiToken } = stack.info();
    if (apiUrl === null || apiToken === null) throw new Error("the stack has no API");
    const memory = (): number => {
      const status = readFileSync(`/proc/${stack.pidOf("api")}/status`, "utf8");
      return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024;
    };
    const { id: profileId } = await client.createProfile(largeProfile());
    const port = Number(new URL(apiUrl).port);
    const rows = [];
    for (const name of names) {
      const { token } = await client.createToken({ name: `attack-${name}`, role: "operator" });
      const before = memory();
      const end = begin(attackOf(name, { port, token, profileId }));
      const noticed = await notice({ url: apiUrl, token: apiToken, memory });
      const statuses = end();
      await sleep(REST_SECONDS * 1000);
      const row = {
        attack: name,
        asked: noticed.milliseconds.length,
        failed: noticed.failed,
        p50Milliseconds: quantile(noticed.milliseconds, 0.5),
        p99Milliseconds: quantile(noticed.milliseconds, 0.99),
        longestMilliseconds: quantile(noticed.milliseconds, 1),
        statuses,
        mebibytes: {
          before: Math.round(before),
          highest: Math.round(noticed.highestMebibytes),
          afterRest: Math.round(memory()),
        },
      };
      console.error(JSON.stringify(row));
      rows.push(row);
    }
    return rows;
  },
  productServices().filter(({ name }) => name === "api"),
);
console.log(JSON.stringify({ chaos: "flood", seconds, restSeconds: REST_SECONDS, rows }, null, 2));
