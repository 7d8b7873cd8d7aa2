// Builds the images, starts the compose file from them, trains a job twice, kills the supervisor's container during
// the second, and compares the losses. Prints JSON. usage: npm run chaos -- images [--engine docker|podman]
// [--base IMAGE] [--skip-build] [-- OPTION…] What follows `--` goes to each build, such as --network host.
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { InternEvoClient } from "@internevo/client";
import { constraintsOf, isAtRest, type Plan } from "@internevo/domain";
import { parse } from "yaml";
import { chaosJob, insist, until } from "./src/harness.ts";

const CHECKOUT = resolve(import.meta.dirname, "../..");
const COMPOSE_FILE = join(CHECKOUT, "infra/compose/compose.yaml");
/** Targets of the Dockerfile, and the names by which the compose file knows them. */
const IMAGES = {
  service: "internevo",
  trainer: "internevo-trainer",
  postgres: "internevo-postgres",
  nats: "internevo-nats",
};
const STEPS = 400;

const { values, positionals } = parseArgs({
  options: {
    engine: { type: "string", default: "docker" },
    base: { type: "string" },
    "skip-build": { type: "boolean", default: false },
  },
  allowPositionals: true,
});
const { engine } = values;
if (engine !== "docker" && engine !== "podman") throw new Error("--engine is docker or podman");

/** @returns what it printed. @throws Error with what it printed where it fails */
function run(
  command: string,
  args: readonly string[],
  { shows = false, env = {} }: { readonly shows?: boolean; readonly env?: Record<string, string> } = {},
): string {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    cwd: CHECKOUT,
    env: { ...process.env, ...env },
    encoding: "utf8",
    maxBuffer: 2 ** 28,
    stdio: ["ignore", shows ? 2 : "pipe", shows ? 2 : "pipe"],
  });
  if (error) throw error;
  if (status !== 0)
    throw new Error(`${command} ${args.join(" ")} ended with ${status}: ${stderr ?? "see above"}`);
  return stdout ?? "";
}

function build(): Record<string, number> {
  const seconds: Record<string, number> = {};
  for (const [target, tag] of Object.entries(IMAGES)) {
    const begin = performance.now();
    const base = values.base === undefined ? [] : ["--build-arg", `BASE=${values.base}`];
    const file = ["--file", "infra/images/Dockerfile", "--target", target, "--tag", tag];
    run(engine, ["build", ...file, ...base, ...positionals, "."], { shows: true });
    seconds[tag] = Math.round((performance.now() - begin) / 1000);
  }
  return seconds;
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as AddressInfo;
  await new Promise((closed) => server.close(closed));
  return port;
}

/** The compose file under a name of its own, with secrets of its own. */
class Composed {
  readonly #inputs = mkdtempSync(join(tmpdir(), "internevo-images-"));
  readonly #project = `internevo-check-${process.pid}`;
  readonly #settings: Record<string, string>;
  readonly client: InternEvoClient;

  constructor(port: number) {
    const secret = (): string => randomBytes(24).toString("hex");
    const token = secret();
    this.#settings = {
      POSTGRES_PASSWORD: secret(),
      NATS_TOKEN: secret(),
      INTERNEVO_API_TOKEN: token,
      INTERNEVO_PORT: String(port),
      INTERNEVO_INPUTS: this.#inputs,
      INTERNEVO_SETTINGS: join(this.#inputs, "settings.env"),
    };
    // The profile only has to be real, not precise.
    writeFileSync(join(this.#inputs, "settings.env"), "INTERNEVO_PROBE_POINT_SECONDS=0.05\n");
    this.client = new InternEvoClient({ baseUrl: `http://127.0.0.1:${port}`, token });
  }

  compose(...args: readonly string[]): string {
    const [command, ...first] =
      engine === "docker" ? (["docker", "compose"] as const) : (["podman-compose"] as const);
    return run(command, [...first, "-f", COMPOSE_FILE, "-p", this.#project, ...args], {
      env: this.#settings,
    });
  }

  /** Ends a container as a crash does, and starts it again as the machine does when it comes back. */
  restart(service: string): void {
    const names = run(engine, ["ps", "--format", "{{.Names}}"]).split("\n");
    const ending = new RegExp(`[-_]${service}[-_]1$`);
    const name = names.find((each) => each.startsWith(this.#project) && ending.test(each));
    if (name === undefined) throw new Error(`${service} has no container`);
    run(engine, ["kill", "--signal", "KILL", name]);
    run(engine, ["start", name]);
  }

  /** Services that do not say that they are ready. */
  unready(): string[] {
    const { services } = parse(readFileSync(COMPOSE_FILE, "utf8"), { merge: true }) as {
      services: Record<string, { healthcheck?: unknown }>;
    };
    const names = Object.entries(services).flatMap(([name, each]) => (each.healthcheck ? [name] : []));
    const isReady = (name: string): boolean => {
      try {
        this.compose("exec", "-T", name, "internevo-healthy");
        return true;
      } catch {
        return false;
      }
    };
    return names.filter((name) => !isReady(name));
  }

  remove(): void {
    this.compose("down", "--volumes");
    rmSync(this.#inputs, { recursive: true, force: true });
  }
}

interface Trained {
  readonly plan: Plan | undefined;
  readonly losses: readonly number[];
}

/** @param disturb is called when the job has trained some steps. */
async function train(client: InternEvoClient, job: unknown, disturb?: () => void): Promise<Trained> {
  const { id } = await insist(() => client.submitJob(job), 120);
  const list = async (): Promise<number[]> => {
    const all: number[] = [];
    for (let after = 0; ;) {
      const { items } = await insist(() => client.jobMetrics(id, { after, limit: 200 }));
      if (items.length === 0) return all;
      all.push(...items.map(({ loss }) => loss));
      after = items.at(-1)?.step ?? after;
    }
  };
  if (disturb) {
    await until("the job trains", async () => (await list()).length > STEPS / 10, 600);
    disturb();
  }
  await until("the job's end", async () => isAtRest((await insist(() => client.getJob(id), 120)).state), 900);
  const { state, failure, report } = await client.getJob(id);
  if (state !== "succeeded") throw new Error(`the job ended as ${state}: ${JSON.stringify(failure)}`);
  return { plan: report?.plan, losses: await list() };
}

const buildSeconds = values["skip-build"] ? {} : build();
const composed = new Composed(await freePort());
try {
  composed.compose("up", "--detach");
  await insist(() => composed.client.whoami(), 180);
  await until("every service is ready", () => composed.unready().length === 0, 120);
  const job = {
    ...(await chaosJob("in-containers")),
    steps: STEPS,
    checkpointing: { everySteps: 50, keepLast: 2 },
  };
  const { plan, losses: undisturbed } = await train(composed.client, job);
  if (plan === undefined) throw new Error("the job's report has no plan");
  const again = { ...job, plan: constraintsOf(plan) };
  const { losses: disturbed } = await train(composed.client, again, () =>
    composed.restart("executor-supervisor"),
  );
  const areEqual = JSON.stringify(undisturbed) === JSON.stringify(disturbed);
  const commandLine = composed.compose("exec", "-T", "api", "internevo", "ps");
  const report = { chaos: "images", engine, buildSeconds, steps: disturbed.length, areEqual };
  console.log(JSON.stringify(report, null, 2));
  process.exitCode = areEqual && undisturbed.length === STEPS && /in-containers/.test(commandLine) ? 0 : 1;
} finally {
  composed.remove();
}
