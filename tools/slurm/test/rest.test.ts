import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launchRanks, type LaunchOptions, type NativeProgram } from "@internevo/launcher";
import { Type, type TSchema } from "typebox";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { whyImpossible } from "../src/stand.ts";
import { createSite, runsOn, type Site } from "./slurm-world.ts";

const impossible = whyImpossible();
if (impossible !== undefined) console.warn(`The tests of slurmrestd are skipped: ${impossible}`);

type Program = NativeProgram<TSchema, TSchema>;
const HELLO = `printf '{"event":"hello","host":"%s","text":"%s"}\\n' "$(hostname)" "$WORD"`;
const DONE = `printf '{"event":"done"}\\n'`;

describe.skipIf(impossible !== undefined)("a launch through slurmrestd", () => {
  let site: Site;
  let directory: string;
  let url: string;
  beforeAll(async () => {
    site = await createSite();
    directory = mkdtempSync(join(tmpdir(), "internevo-slurm-rest-"));
    const found = await site.slurm.startRest();
    if (found === undefined) throw new Error("slurmrestd is not installed");
    url = found;
    // The tools must not be what answers.
    delete process.env["SLURM_CONF"];
  });
  afterAll(async () => {
    await site.close();
    rmSync(directory, { recursive: true, force: true });
  });

  async function launch(body: string, over: Partial<LaunchOptions<Program>> = {}) {
    const path = join(mkdtempSync(join(directory, "program-")), "program");
    writeFileSync(path, `#!/bin/bash\n${body}\n`, { mode: 0o755 });
    const events: { event: string; host: string; text: string }[] = [];
    const queue: string[] = [];
    const outcome = await launchRanks<Program>({
      program: { name: "program", path, configSchema: Type.Any(), eventSchema: Type.Any() },
      config: {},
      ranks: 4,
      ranksPerNode: 2,
      threadsPerRank: 1,
      launcher: "slurm",
      runDirectory: join(directory, "run"),
      // slurmrestd hands no SLURM_CONF on to the job's commands.
      settings: { ...site.settings, rest: { url }, environment: { WORD: "it's", ...site.slurm.environment } },
      ...over,
      onQueue: (message, waits) => {
        queue.push(message);
        over.onQueue?.(message, waits);
      },
      onEvent: (event, isRepeated) => {
        events.push(event as (typeof events)[number]);
        over.onEvent?.(event, isRepeated);
      },
    });
    return { outcome, events, queue };
  }

  it("runs ranks where the mesh wants them", async () => {
    const go = join(directory, "go");
    const { outcome, events, queue } = await launch(
      `${HELLO}; until [ -e ${go} ]; do sleep 0.05; done; [ "$PMIX_RANK" = 0 ] && ${DONE}; exit 0`,
      { onQueue: (message) => void (/ runs on /.test(message) && writeFileSync(go, "")) },
    );
    expect(outcome).toMatchObject({ status: "completed" });
    const said = events.filter(({ event }) => event === "hello").sort((a, b) => a.host.localeCompare(b.host));
    const hosts = said.map(({ host }) => host);
    expect(said.map(({ text }) => text)).toEqual(Array(4).fill("it's"));
    expect(hosts).toEqual([hosts[0], hosts[0], hosts[2], hosts[2]]);
    expect(queue.at(-1)).toMatch(runsOn(hosts));
  });

  it("asks for an orderly end, and cancels", async () => {
    const stop = new AbortController();
    let begun = 0;
    const asked = await launch(
      `stop() { ${DONE}; exit 75; }; trap stop USR1; ${HELLO}; while :; do sleep 0.1; done`,
      { signal: stop.signal, onEvent: () => void (++begun === 4 && stop.abort()) },
    );
    expect(asked.outcome).toMatchObject({ status: "stopped", graceful: true });
    const kill = new AbortController();
    const killed = await launch(`${HELLO}; sleep 600`, {
      killSignal: kill.signal,
      onEvent: () => kill.abort(),
    });
    expect(killed.outcome).toMatchObject({ status: "stopped", graceful: false });
  });

  it("tells in words what is refused, and that nobody answers", async () => {
    const refused = await launch(HELLO, {
      settings: { ...site.settings, rest: { url }, partition: "nowhere" },
    });
    expect(refused.outcome).toMatchObject({
      status: "failed",
      failure: {
        code: "not-started",
        message: expect.stringMatching(/^Slurm refuses the job: .*partition/i),
      },
    });
    const kill = new AbortController();
    const { queue, outcome } = await launch(HELLO, {
      killSignal: kill.signal,
      settings: { ...site.settings, rest: { url: `unix:${directory}/nobody` } },
      onQueue: () => kill.abort(),
    });
    expect(queue[0]).toMatch(
      /^Slurm does not answer \(slurmrestd does not answer: .*\); the job is submitted when it does$/,
    );
    expect(outcome).toMatchObject({ status: "stopped" });
  }, 900_000);
});
