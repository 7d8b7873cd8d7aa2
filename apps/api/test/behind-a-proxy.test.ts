import { createServer, request as send } from "node:http";
import type { AddressInfo } from "node:net";
import { readConfig } from "@internevo/service-kit";
import { afterEach, expect, it } from "vitest";
import { ApiConfigSchema } from "../src/config.ts";
import { trustedProxies } from "../src/http/trusted-proxies.ts";
import { startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

/** A proxy that adds the address that it saw, as most do. @param sees what it takes for that */
async function startProxy(to: string, sees: () => string): Promise<string> {
  const server = createServer((incoming, outgoing) => {
    const said = incoming.headers["x-forwarded-for"];
    const headers = {
      ...incoming.headers,
      "x-forwarded-for": said === undefined ? sees() : `${String(said)}, ${sees()}`,
    };
    incoming.pipe(
      send(`${to}${incoming.url ?? ""}`, { method: incoming.method, headers }, (answer) => {
        outgoing.writeHead(answer.statusCode ?? 0, answer.headers);
        answer.pipe(outgoing);
      }),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  cleanups.unshift(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function start(setting: string): Promise<string> {
  const config = readConfig("api", ApiConfigSchema, {
    DATABASE_URL: "postgres://x",
    NATS_URL: "nats://x",
    INTERNEVO_API_TRUST_PROXY: setting,
  });
  api = await startTestApi({
    trustProxy: trustedProxies(config.INTERNEVO_API_TRUST_PROXY),
    limits: { wrongTokensPerMinute: 2 },
  });
  cleanups.push(() => api.close());
  return api.app.listen({ host: "127.0.0.1", port: 0 });
}

it.each(["true", "1", "127.0.0.0/8"])(
  "counts who guesses tokens by the address that the proxy saw, whatever else is said: %s",
  async (setting) => {
    let address = "192.0.2.1";
    const proxy = await startProxy(await start(setting), () => address);
    const guess = async (said: string): Promise<number> => {
      const headers = { authorization: "Bearer ivo_wrong", "x-forwarded-for": said };
      return (await fetch(`${proxy}/api/v1/whoami`, { headers })).status;
    };
    const statuses = [];
    for (let at = 0; at < 4; at += 1) statuses.push(await guess(`198.51.100.${at}`));
    expect(statuses).toEqual([401, 401, 429, 429]);
    address = "192.0.2.2";
    expect(await guess("192.0.2.1")).toBe(401);
  },
);

it("counts behind two proxies by the address that the outer one saw", async () => {
  const inner = await startProxy(await start("2"), () => "10.0.0.9");
  let address = "192.0.2.1";
  const outer = await startProxy(inner, () => address);
  const guess = async (): Promise<number> =>
    (await fetch(`${outer}/api/v1/whoami`, { headers: { authorization: "Bearer ivo_wrong" } })).status;
  expect([await guess(), await guess(), await guess()]).toEqual([401, 401, 429]);
  address = "192.0.2.2";
  expect(await guess()).toBe(401);
});
