import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, it } from "vitest";
import { cli } from "./in-process.ts";

const JOB = "11111111-1111-4111-8111-111111111111";
/** An object for every question, with nothing in it that is asked for. */
const server = createServer((request, response) => {
  const isList = request.url?.includes("/artifacts") === true;
  response
    .writeHead(200, { "content-type": "application/json" })
    .end(isList ? JSON.stringify({ items: [{ name: 7, kind: "export", bytes: "x" }] }) : "{}");
});
beforeAll(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve)));
afterAll(() => server.close());

it("says that an answer is not the API's, and not which of its members is read", async () => {
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  for (const args of [["ps"], ["show", JOB], ["artifacts", JOB], ["plan-change", "list", JOB]]) {
    const { status, stderr } = await cli(...args, "--url", url, "--token", "t");
    expect([args, status]).toEqual([args, 5]);
    expect(stderr).toContain(`an answer of ${url} is not what this version reads`);
    expect(stderr).toContain("may be another program than InternEvo's API");
  }
});
