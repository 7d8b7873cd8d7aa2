import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launchRanks } from "@internevo/launcher";
import { Type } from "typebox";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { whyImpossible } from "../src/stand.ts";
import { createSite, type Site } from "./slurm-world.ts";

const impossible = whyImpossible();
if (impossible !== undefined)
  console.warn(`The tests of nodes that cannot start a job are skipped: ${impossible}`);

describe.skipIf(impossible !== undefined)("a node that cannot start a job", () => {
  let site: Site;
  let directory: string;
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), "internevo-slurm-prolog-"));
    const prolog = join(directory, "prolog");
    writeFileSync(prolog, `#!/bin/bash\n[ "$SLURMD_NODENAME" != n1 ]\n`, { mode: 0o755 });
    site = await createSite({}, { configuration: [`Prolog=${prolog}`] });
  });
  afterAll(async () => {
    await site.close();
    rmSync(directory, { recursive: true, force: true });
  });

  it("counts as lost, and the next launch gets others", async ({ onTestFailed }) => {
    onTestFailed(() => console.error(site.slurm.logs()));
    const path = join(directory, "program");
    writeFileSync(
      path,
      `#!/bin/bash\nprintf '{"event":"hello","host":"%s"}\\n{"event":"done"}\\n' "$(hostname)"\n`,
      { mode: 0o755 },
    );
    const hosts: string[] = [];
    const launch = () =>
      launchRanks({
        program: { name: "program", path, configSchema: Type.Any(), eventSchema: Type.Any() },
        config: {},
        ranks: 1,
        ranksPerNode: 1,
        threadsPerRank: 1,
        launcher: "slurm",
        settings: site.settings,
        runDirectory: join(directory, "run"),
        onEvent: (event) =>
          void hosts.push(
            ...((event as { host?: string }).host === undefined ? [] : [(event as { host: string }).host]),
          ),
      });
    expect(await launch()).toMatchObject({
      status: "failed",
      failure: {
        code: "rank-lost",
        message: expect.stringMatching(
          /^Slurm job \d+ on n1 has ended: it was cancelled in Slurm before its script began/,
        ) as string,
      },
    });
    expect(await launch()).toMatchObject({ status: "completed" });
    expect(hosts).toEqual([expect.stringMatching(/^n[23]$/)]);
  }, 300_000);
});
