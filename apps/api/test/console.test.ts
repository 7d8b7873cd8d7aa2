import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-console-"));
  await mkdir(join(directory, "assets"));
  await writeFile(join(directory, "index.html"), '<!doctype html><script type="module" src="/assets/main-1a2b.js"></script>');
  await writeFile(join(directory, "assets", "main-1a2b.js"), "export {};");
  api = await startTestApi({ consoleDirectory: directory });
});
afterAll(async () => {
  await api.close();
  await rm(directory, { recursive: true });
});

const get = (url: string, accept = "text/html,*/*") => api.app.inject({ url, headers: { accept } });

describe("the built console", () => {
  it("is served at / and at every path of its own, under a policy that runs only its scripts", async () => {
    for (const url of ["/", "/jobs", "/jobs/0b5e?tab=plans", "/workloads/1"]) {
      const page = await get(url);
      expect([url, page.statusCode, page.headers["content-type"], page.headers["cache-control"]]).toEqual([url, 200, "text/html; charset=utf-8", "no-cache"]);
      expect(page.body).toContain("/assets/main-1a2b.js");
      expect(page.headers["content-security-policy"]).toMatch(/script-src 'self';/);
      expect(page.headers["content-security-policy"]).not.toContain("upgrade-insecure-requests");
    }
    const script = await get("/assets/main-1a2b.js", "*/*");
    expect([script.statusCode, script.headers["content-type"], script.headers["cache-control"]]).toEqual([200, expect.stringContaining("javascript"), "public, max-age=31536000, immutable"]);
  });

  it("does not hide what is not there", async () => {
    for (const url of ["/api/v1/nothing", "/api/nothing", "/assets/gone-9f.js", "/docs/nothing", "/healthz/x"]) {
      const reply = await get(url);
      expect([url, reply.statusCode, reply.headers["content-type"]]).toEqual([url, 404, "application/problem+json; charset=utf-8"]);
    }
    expect((await get("/jobs", "application/json")).statusCode).toBe(404);
    for (const url of ["/../package.json", "/..%2fpackage.json", "/%2e%2e/package.json"]) expect((await get(url, "*/*")).statusCode).toBeGreaterThanOrEqual(400);
  });
});
