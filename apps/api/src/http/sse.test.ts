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
      for await (const frame of frames(source())) text += frame;
      return text;
    }),
  );
  isOver = true;
  const last = `id: ${pages}\nevent: step\ndata: {"id":${pages}}\n\n`;
  for (const text of read) expect(text.match(/^id: /gm)).toHaveLength(pages);
  for (const text of read) expect(text.endsWith(last)).toBe(true);
  expect(turns).toBeGreaterThanOrEqual((streams * pages) / PAGES_A_TURN);
});
