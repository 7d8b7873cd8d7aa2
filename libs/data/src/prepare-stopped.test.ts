import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm, stat, truncate, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@internevo/test-kit";
import { afterEach, beforeEach, expect, it } from "vitest";
import { prepareDataset, removeAbandonedDatasets } from "./prepare.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-stopped-"));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

const at = (name: string): string => join(directory, name);
const datasets = (): Promise<string[]> => readdir(at("data/datasets")).catch(() => []);
const cut = { vocabularySize: 256, sequenceLengthTokens: 64 };

/** A file that takes no room itself. */
async function sparse(name: string, bytes: number): Promise<string> {
  await writeFile(at(name), "");
  await truncate(at(name), bytes);
  return at(name);
}

it("ends within a second of its signal, and leaves nothing", async () => {
  const path = await sparse("large.txt", 2 ** 31);
  const stop = new AbortController();
  const prepared = prepareDataset({ format: "text", paths: [path] }, at("data"), cut, {
    signal: stop.signal,
  });
  const refused = expect(prepared).rejects.toThrow("cancelled");
  await eventually("a file that is written", async () => (await datasets()).length > 0);
  const began = Date.now();
  stop.abort(new Error("cancelled"));
  await refused;
  expect(Date.now() - began).toBeLessThan(1000);
  expect(await datasets()).toEqual([]);
});

it("ends while tokens are read", async () => {
  const dataset = await prepareDataset(
    { format: "text", paths: [await sparse("text", 1 << 20)] },
    at("data"),
    cut,
  );
  const stopped = AbortSignal.abort(new Error("the service stops"));
  await expect(
    prepareDataset({ format: "tokens", path: dataset.path }, at("other"), cut, { signal: stopped }),
  ).rejects.toThrow("the service stops");
  expect(await readdir(at("other/datasets"))).toEqual([]);
});

it("refuses text that has no room before it writes any", async () => {
  const path = await sparse("huge.txt", 10 * 2 ** 40);
  await expect(prepareDataset({ format: "text", paths: [path] }, at("data"), cut)).rejects.toMatchObject({
    code: "data-invalid",
    details: [
      {
        field: "data.paths",
        value: 20 * 2 ** 40,
        message: expect.stringMatching(/^take 20.0 TiB as tokens, and .* left, of which .* stay free$/),
        remedy: expect.stringMatching(/^make room/),
      },
    ],
  });
  expect(await datasets()).toEqual([]);
});

it("keeps datasets from other users of the machine", async () => {
  await writeFile(at("a.txt"), "some text");
  const { path } = await prepareDataset({ format: "text", paths: [at("a.txt")] }, at("data"), cut);
  expect((await stat(at("data/datasets"))).mode & 0o777).toBe(0o700);
  expect((await stat(path)).mode & 0o777).toBe(0o600);
});

it("removes what a process that was killed left, and nothing of one that writes", async () => {
  const path = await sparse("large.txt", 2 ** 34);
  const script = `
    import { prepareDataset } from ${JSON.stringify(join(import.meta.dirname, "prepare.ts"))};
    await prepareDataset(${JSON.stringify({ format: "text", paths: [path] })}, ${JSON.stringify(at("data"))}, ${JSON.stringify(cut)});
  `;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", script], { stdio: "inherit" });
  try {
    await eventually("a file that is written", async () => (await datasets()).length > 0);
    expect(await removeAbandonedDatasets(at("data"))).toEqual([]);
  } finally {
    child.kill("SIGKILL");
    await once(child, "exit");
  }
  const left = await datasets();
  expect(left).toHaveLength(1);
  expect(await removeAbandonedDatasets(at("data"))).toEqual(left);
  // Who wrote these is not known here: they are left until nobody has touched them for long.
  await writeFile(at("data/datasets/text-1.tmp"), "");
  expect(await removeAbandonedDatasets(at("data"))).toEqual([]);
  const longAgo = Date.now() / 1000 - 3600;
  await utimes(at("data/datasets/text-1.tmp"), longAgo, longAgo);
  await writeFile(at("a.txt"), "some text");
  await prepareDataset({ format: "text", paths: [at("a.txt")] }, at("data"), cut);
  expect((await datasets()).filter((name) => name.endsWith(".tmp"))).toEqual([]);
}, 30_000);
