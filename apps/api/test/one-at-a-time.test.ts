import { connect, type Socket } from "node:net";
import { createHealth, type Health } from "@internevo/service-kit";
import { eventually } from "@internevo/test-kit";
import { afterEach, describe, expect, it } from "vitest";
import { startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let port: number;
const sockets = new Set<Socket>();
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await api.close();
});

/** Readiness that is looked at as long as the test wants, with how many look at once and in all. */
function gatedHealth() {
  const health = createHealth("api");
  const gates: (() => void)[] = [];
  let atWork = 0;
  const seen = { most: 0, all: 0 };
  const readiness: Health["readiness"] = async () => {
    atWork += 1;
    seen.all += 1;
    seen.most = Math.max(seen.most, atWork);
    await new Promise<void>((resolve) => gates.push(resolve));
    atWork -= 1;
    return { ready: true, checks: {} };
  };
  return { health: { ...health, readiness }, gates, seen };
}

async function start(options: Parameters<typeof startTestApi>[0]): Promise<void> {
  api = await startTestApi(options);
  port = Number(new URL(await api.app.listen({ host: "127.0.0.1", port: 0 })).port);
}

function say(text: string): { readonly socket: Socket; heard(): string } {
  let heard = "";
  const socket = connect(port, "127.0.0.1", () => socket.write(text));
  sockets.add(socket);
  socket.on("data", (data) => (heard += data.toString())).on("error", () => undefined);
  return { socket, heard: () => heard };
}

const asking = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`;
const answersIn = (text: string): number => text.match(/HTTP\/1\.1 \d+ /g)?.length ?? 0;

describe("many requests on one connection", () => {
  it("are worked on one after another, and each is answered", async () => {
    const { health, gates, seen } = gatedHealth();
    await start({ health });
    const line = say(asking("/readyz").repeat(20) + asking("/nothing"));
    for (let at = 0; at < 20; at += 1) {
      await eventually("the next request", async () => gates.length > 0);
      gates.shift()?.();
    }
    await eventually("every answer", async () => answersIn(line.heard()) === 21);
    expect(seen).toEqual({ most: 1, all: 20 });
    expect(line.heard()).toMatch(/HTTP\/1\.1 404 [^]*"code":"not-found"/);
  });

  it("are forgotten when it closes", async () => {
    const { health, gates, seen } = gatedHealth();
    await start({ health });
    const gone = say(asking("/readyz").repeat(20));
    await eventually("the first request", async () => gates.length === 1);
    gone.socket.destroy();
    const next = say(asking("/readyz"));
    await eventually("somebody else's request", async () => gates.length === 2);
    for (const open of gates) open();
    await eventually("somebody else's answer", async () => answersIn(next.heard()) === 1);
    expect(seen.all).toBe(2);
  });

  it("are too many when dozens wait, and others are answered", async () => {
    const { health, gates, seen } = gatedHealth();
    await start({ health });
    const greedy = say(asking("/readyz").repeat(300));
    await new Promise((resolve) => greedy.socket.once("close", resolve));
    for (const open of gates) open();
    const next = say(asking("/healthz"));
    await eventually("somebody else's answer", async () => answersIn(next.heard()) === 1);
    expect(seen.all).toBe(1);
  });
});

describe("what needs no token", () => {
  it("counts for its address, but for what watches the service", async () => {
    await start({ limits: { requestsPerMinute: 2 } });
    const ask = async (url: string, remoteAddress = "192.0.2.1") =>
      (await api.app.inject({ url, remoteAddress })).statusCode;
    expect([await ask("/docs/json"), await ask("/docs/yaml"), await ask("/docs/json")]).toEqual([
      200, 200, 429,
    ]);
    expect([await ask("/assets/index.js"), await ask("/nothing")]).toEqual([429, 429]);
    expect(await ask("/docs/json", "192.0.2.2")).toBe(200);
    for (const url of ["/healthz", "/readyz", "/metrics"]) expect(await ask(url)).toBe(200);
  });

  it("the API's document is the same bytes however often it is sent", async () => {
    await start({});
    const [first, second] = [await api.app.inject("/docs/json"), await api.app.inject("/docs/json")];
    expect(first.json()).toEqual(JSON.parse(JSON.stringify(api.app.swagger())));
    expect(first.headers["content-type"]).toBe("application/json; charset=utf-8");
    expect(second.rawPayload.equals(first.rawPayload)).toBe(true);
    expect((await api.app.inject("/docs/yaml")).body).toBe(api.app.swagger({ yaml: true }));
  });
});
