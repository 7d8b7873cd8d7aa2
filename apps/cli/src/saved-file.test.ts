import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { saveBody, savedPath } from "./saved-file.ts";

let directory: string;
const at = (name: string): string => join(directory, name);
beforeEach(async () => void (directory = await mkdtemp(join(tmpdir(), "internevo-saved-"))));
afterEach(() => rm(directory, { recursive: true }));

const { signal } = new AbortController();
const save = (path: string, text = "new"): Promise<number> =>
  saveBody(new Response(text), path, { signal, onBytes: () => {} });
const refused = (message: string, remedy: string) =>
  expect.objectContaining({
    code: "bad-request",
    details: [expect.objectContaining({ field: "--out", message, remedy: expect.stringContaining(remedy) })],
  });

it("saves in a folder that ends in a slash, whether it is there or not", async () => {
  const path = savedPath(at("sub/checkpoints/"), "step-20.tar");
  expect(path).toBe(at("sub/checkpoints/step-20.tar"));
  expect(await save(path)).toBe(3);
  expect(savedPath(at("sub/checkpoints"), "step-40.tar")).toBe(at("sub/checkpoints/step-40.tar"));
  expect(await readdir(at("sub/checkpoints"))).toEqual(["step-20.tar"]);
});

it("saves what has no place under the last part of its name, here", () => {
  for (const name of ["../../x.tar", "/etc/x.tar", "a/../x.tar"])
    expect(savedPath(undefined, name)).toBe(join(process.cwd(), "x.tar"));
  expect(() => savedPath(undefined, "a/..")).toThrow(refused("exists already", "another place"));
});

it("takes a dash for no file", () => {
  expect(() => savedPath("-", "steps.csv")).toThrow(
    refused("is no file: a download is kept whole or not at all", "a folder"),
  );
});

it("replaces nothing, whatever the name ends in, and whoever was faster", async () => {
  await writeFile(at("f"), "keep");
  expect(() => savedPath(at("f"), "x")).toThrow(refused("exists already", "another place"));
  expect(() => savedPath(at("f/"), "x")).toThrow(refused("is a file, and no folder", "leave the slash out"));
  const path = savedPath(at("g"), "x");
  await writeFile(path, "keep");
  await expect(save(path)).rejects.toEqual(refused("exists already", "another place"));
  expect(await Promise.all(["f", "g"].map((name) => readFile(at(name), "utf8")))).toEqual(["keep", "keep"]);
  expect((await readdir(directory)).sort()).toEqual(["f", "g"]);
});

it("names what is in the way of a folder", async () => {
  await mkdir(at("d"));
  await writeFile(at("d/file"), "keep");
  await expect(save(savedPath(at("d/file/x"), "x"))).rejects.toEqual(
    refused("cannot be written (EEXIST)", "that may be written"),
  );
});
