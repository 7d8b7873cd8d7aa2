import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { brotliCompressSync, brotliDecompressSync, gunzipSync, gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-console-"));
  await mkdir(join(directory, "assets"));
  await writeFile(
    join(directory, "index.html"),
    '<!doctype html><script type="module" src="/assets/main-1a2b.js"></script>',
  );
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
      expect([url, page.statusCode, page.headers["content-type"], page.headers["cache-control"]]).toEqual([
        url,
        200,
        "text/html; charset=utf-8",
        "no-cache",
      ]);
      expect(page.body).toContain("/assets/main-1a2b.js");
      expect(page.headers["content-security-policy"]).toMatch(/script-src 'self';/);
      expect(page.headers["content-security-policy"]).not.toContain("upgrade-insecure-requests");
    }
    const script = await get("/assets/main-1a2b.js", "*/*");
    expect([script.statusCode, script.headers["content-type"], script.headers["cache-control"]]).toEqual([
      200,
      expect.stringContaining("javascript"),
      "public, max-age=31536000, immutable",
    ]);
  });

  it("sends scripts as small as the build made them, to whoever can read that", async () => {
    const source = Buffer.from("export const text = 'again and again and again and again';");
    const path = join(directory, "assets", "large-3c4d.js");
    await Promise.all([
      writeFile(path, source),
      writeFile(`${path}.br`, brotliCompressSync(source)),
      writeFile(`${path}.gz`, gzipSync(source)),
    ]);
    const ask = (encodings: string) =>
      api.app.inject({ url: "/assets/large-3c4d.js", headers: { "accept-encoding": encodings } });
    for (const [asked, sent, read] of [
      ["gzip, deflate, br", "br", brotliDecompressSync],
      ["gzip", "gzip", gunzipSync],
      ["identity", undefined, (bytes: Buffer) => bytes],
    ] as const) {
      const reply = await ask(asked);
      expect([
        asked,
        reply.statusCode,
        reply.headers["content-encoding"],
        reply.headers["content-type"],
        reply.headers["cache-control"],
      ]).toEqual([
        asked,
        200,
        sent,
        expect.stringContaining("javascript"),
        "public, max-age=31536000, immutable",
      ]);
      expect(reply.headers.vary).toContain("accept-encoding");
      expect(read(reply.rawPayload)).toEqual(source);
    }
    // What has no smaller form is sent as it is.
    expect(
      (await api.app.inject({ url: "/assets/main-1a2b.js", headers: { "accept-encoding": "br" } })).body,
    ).toBe("export {};");
  });

  it("does not hide what is not there", async () => {
    for (const url of [
      "/api/v1/nothing",
      "/api/nothing",
      "/assets/gone-9f.js",
      "/docs/nothing",
      "/healthz/x",
    ]) {
      const reply = await get(url);
      expect([url, reply.statusCode, reply.headers["content-type"]]).toEqual([
        url,
        404,
        "application/problem+json; charset=utf-8",
      ]);
    }
    expect((await get("/jobs", "application/json")).statusCode).toBe(404);
    for (const url of ["/../package.json", "/..%2fpackage.json", "/%2e%2e/package.json"])
      expect((await get(url, "*/*")).statusCode).toBeGreaterThanOrEqual(400);
  });
});

describe("a console that was not built", () => {
  it("says so to browsers, with what builds it", async () => {
    const without = await startTestApi({ consoleDirectory: join(directory, "assets") });
    try {
      for (const url of ["/", "/jobs"]) {
        const reply = await without.app.inject({ url, headers: { accept: "text/html,*/*" } });
        expect([reply.statusCode, reply.json()]).toEqual([
          404,
          expect.objectContaining({
            code: "not-found",
            detail: "the console is not built",
            errors: [
              {
                field: "(path)",
                value: url,
                message: "is the console's, which is not built",
                remedy:
                  "build it with `npm run setup`, or point INTERNEVO_API_CONSOLE_DIRECTORY to where it is built; then start the API again",
              },
            ],
          }),
        ]);
      }
      expect((await without.app.inject({ url: "/x.js", headers: { accept: "*/*" } })).json()).toMatchObject({
        detail: "GET /x.js not found",
      });
    } finally {
      await without.close();
    }
  });
});
