import { expect, it } from "vitest";
import { frames, PAGES_A_TURN, type SseMessage } from "./sse.ts";

it("leaves the event loop to others between the pages of all streams", async () => {
  const [streams, pages] = [20, 50];
  // Every page is there at once, and whoever reads takes it at once.
  async function* source(): AsyncGenerator<readonly SseMessage[], void, void> {
    for (let id = 1; id <= pages; id += 1) yield [{ id, event: "step", data: { id } }];
  }
  let turns = 0;
  let isOver = false;
  const count = (): void => {
    turns += 1;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  const read = await Promise.all(
    Array.from({ length: streams }, async () => {
      let text = "";
      for await (const frame of frames(source())) text += frame.toString();
      return text;
    }),
  );
  isOver = true;
  const last = `id: ${pages}\nevent: step\ndata: {"id":${pages}}\n\n`;
  for (const text of read) expect(text.match(/^id: /gm)).toHaveLength(pages);
  for (const text of read) expect(text.endsWith(last)).toBe(true);
  expect(turns).toBeGreaterThanOrEqual((streams * pages) / PAGES_A_TURN);
});

it("leaves most of the time to others, however much it has to send", async () => {
  // Each page is large and made for one alone, and nobody waits for anything else.
  const text = "–".repeat(100_000);
  async function* source(): AsyncGenerator<readonly SseMessage[], void, void> {
    for (let id = 1; id <= 20; id += 1) yield [{ id, event: "log", data: { text } }];
  }
  const begun = performance.now();
  const busyBefore = performance.eventLoopUtilization();
  await Promise.all(
    Array.from({ length: 32 }, async () => {
      for await (const _ of frames(source()));
    }),
  );
  const { active } = performance.eventLoopUtilization(busyBefore);
  expect(active / (performance.now() - begun)).toBeLessThan(0.6);
});

it("makes a page once for all who are sent it", async () => {
  const page: readonly SseMessage[] = [{ id: 1, event: "step", data: { loss: 1 } }];
  const source = async function* (): AsyncGenerator<readonly SseMessage[], void, void> {
    yield page;
  };
  const [one, other] = await Promise.all(
    [1, 2].map(async () => {
      const sent: Buffer[] = [];
      for await (const bytes of frames(source())) sent.push(bytes);
      return sent;
    }),
  );
  expect(one).toHaveLength(2);
  expect(one?.[1]).toBe(other?.[1]);
});
