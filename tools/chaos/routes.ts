// Asks every route of the OpenAPI document what it allows, nearly that, and what nobody means, and checks that each answer is one that is
// documented: no 5xx, no silence, every error a problem, every success of its schema. Prints JSON, with a curl for each violation.
// usage: npm run chaos -- routes [--seed 1] [--seconds 120] [--requests N] [--limit 60] [--request N]
import { parseArgs } from "node:util";
import { productServices } from "@internevo/local-stack";
import fc from "fast-check";
import { withStack } from "./src/harness.ts";
import { curlOf, exchange, type Reply } from "./src/routes/exchange.ts";
import { Judge } from "./src/routes/judge.ts";
import { operationsOf, requestsOf, type OpenApi } from "./src/routes/requests.ts";
import { wholeNumber } from "./src/whole-number.ts";

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: "1" },
    seconds: { type: "string", default: "120" },
    requests: { type: "string", default: String(2 ** 31) },
    limit: { type: "string", default: "60" },
    request: { type: "string" },
  },
});
const seed = wholeNumber("--seed", values.seed, 0);
const seconds = wholeNumber("--seconds", values.seconds, 1);
const most = wholeNumber("--requests", values.requests, 1);
const limitSeconds = wholeNumber("--limit", values.limit, 1);
const only = values.request === undefined ? undefined : wholeNumber("--request", values.request, 0);
/** Violations that are told; the others are counted. */
const MOST_TOLD = 50;

export interface RoutesReport {
  readonly chaos: "routes";
  readonly seed: number;
  readonly requests: number;
  readonly statuses: Readonly<Record<string, number>>;
  readonly operations: Readonly<Record<string, number>>;
  readonly slowestSeconds: number;
  readonly violations: readonly {
    readonly request: number;
    readonly operation: string;
    readonly violations: readonly string[];
    readonly curl: string;
  }[];
  readonly violationCount: number;
}

// Jobs are accepted and never begin: only the door is asked.
const report = await withStack(
  async ({ stack }): Promise<RoutesReport> => {
    const { apiUrl, apiToken } = stack.info();
    if (apiUrl === null || apiToken === null) throw new Error("the stack has no API");
    const base = new URL(apiUrl);
    const operations = operationsOf((await (await fetch(new URL("/docs/json", base))).json()) as OpenApi);
    const ids = ["a800-128", "00000000-0000-4000-8000-000000000000"];
    const judge = new Judge();
    const statuses: Record<string, number> = {};
    const asked: Record<string, number> = {};
    const violations: RoutesReport["violations"][number][] = [];
    let violationCount = 0;
    let slowestSeconds = 0;
    let requests = 0;
    const deadline = performance.now() + seconds * 1000;
    const arbitraries = operations.map((operation) => requestsOf(operation, ids));
    for (
      let number = only ?? 0;
      requests < most && performance.now() < deadline && (only === undefined || number === only);
      number += 1
    ) {
      // Each operation in its turn, so that none is left out of a short run.
      const [drawn] = fc.sample(
        arbitraries[number % arbitraries.length] as fc.Arbitrary<Parameters<typeof curlOf>[1]>,
        { seed: seed * 1_000_003 + number, numRuns: 1 },
      );
      if (drawn === undefined) continue;
      const name = `${drawn.operation.method} ${drawn.operation.path}`;
      const reply = await exchange(base, drawn, apiToken, limitSeconds).catch((error: Error) => error);
      requests += 1;
      const status = reply === null || reply instanceof Error ? "none" : reply.status;
      statuses[status] = (statuses[status] ?? 0) + 1;
      asked[name] = (asked[name] ?? 0) + 1;
      slowestSeconds = Math.max(slowestSeconds, status === "none" ? limitSeconds : (reply as Reply).seconds);
      const found =
        reply instanceof Error
          ? [`the connection broke: ${reply.message}`]
          : judge.violations(drawn, reply, limitSeconds);
      if (found.length === 0) continue;
      violationCount += 1;
      const curl = curlOf(base, drawn);
      console.error(`✗ ${number} ${name}: ${found.join("; ")}\n    ${curl.slice(0, 2000)}`);
      if (violations.length < MOST_TOLD)
        violations.push({ request: number, operation: name, violations: found, curl });
    }
    return {
      chaos: "routes",
      seed,
      requests,
      statuses,
      operations: asked,
      slowestSeconds,
      violations,
      violationCount,
    };
  },
  productServices().filter(({ name }) => name === "api"),
);
console.log(JSON.stringify(report, null, 2));
process.exitCode = report.violationCount === 0 ? 0 : 1;
