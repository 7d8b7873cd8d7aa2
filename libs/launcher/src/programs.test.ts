import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { cudaHost } from "./programs.ts";

const directory = mkdtempSync(join(tmpdir(), "internevo-programs-"));
afterAll(() => rmSync(directory, { recursive: true }));

it("finds the CUDA backend where the programs look for it, and nowhere else", () => {
  expect(cudaHost(directory, {}).hasBackend).toBe(false);
  mkdirSync(join(directory, "lib"));
  const library = join(directory, "lib", "libinternevo-cuda.so");
  writeFileSync(library, "");
  expect(cudaHost(directory, {}).hasBackend).toBe(true);
  expect(cudaHost(directory, { INTERNEVO_CUDA_LIBRARY: "/nowhere/libinternevo-cuda.so" })).toEqual({
    hasBackend: false,
    gpus: null,
  });
  expect(cudaHost("/nowhere", { INTERNEVO_CUDA_LIBRARY: library })).toEqual({ hasBackend: true, gpus: null });
});
