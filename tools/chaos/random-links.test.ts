import { once } from "node:events";
import { connect, createServer, type AddressInfo } from "node:net";
import { eventually } from "@internevo/test-kit";
import { afterEach, expect, it } from "vitest";
import { throughLinks, type Link } from "./src/random/links.ts";

const ends: (() => void)[] = [];
afterEach(() => {
  for (const end of ends.splice(0)) end();
});

/** An echo, and a link to it. */
async function linked(): Promise<{ link: Link; port: number }> {
  const echo = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.pipe(socket);
  }).listen(0, "127.0.0.1");
  await once(echo, "listening");
  const { addresses, links } = await throughLinks(
    `nats://x@127.0.0.1:${(echo.address() as AddressInfo).port}`,
  );
  const [link] = links as [Link];
  ends.push(
    () => link.close(),
    () => echo.close(),
  );
  expect(addresses).toBe(`nats://x@127.0.0.1:${link.port}`);
  return { link, port: link.port };
}

function opened(port: number) {
  const socket = connect(port, "127.0.0.1");
  const state = { heard: "", error: "", isClosed: false };
  socket.on("data", (bytes) => (state.heard += bytes.toString()));
  socket.on("error", (error) => (state.error = (error as NodeJS.ErrnoException).code ?? ""));
  socket.on("close", () => (state.isClosed = true));
  ends.push(() => socket.destroy());
  return { socket, state };
}

it("a link that is cut breaks what is open, and refuses what comes until it is mended", async () => {
  const { link, port } = await linked();
  const one = opened(port);
  one.socket.write("a");
  await eventually("the echo", () => one.state.heard === "a");
  link.fail("cut", 3600);
  await eventually("the break", () => one.state.isClosed);
  expect(one.state.error).toBe("ECONNRESET");
  const other = opened(port);
  await eventually("the refusal", () => other.state.isClosed);
  link.mend();
  const third = opened(port);
  third.socket.write("b");
  await eventually("the echo after it", () => third.state.heard === "b");
});

it("a link that is silent passes nothing, and all of it when it is mended", async () => {
  const { link, port } = await linked();
  const { socket, state } = opened(port);
  socket.write("a");
  await eventually("the echo", () => state.heard === "a");
  link.fail("silent", 0.5);
  const began = performance.now();
  socket.write("b");
  await eventually("the echo once it is mended", () => state.heard === "ab");
  expect(performance.now() - began).toBeGreaterThan(400);
  expect(state.isClosed).toBe(false);
});
