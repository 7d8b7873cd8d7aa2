// A process of its own that follows a job by many event streams, until it is told to count.
import { Agent, get, type IncomingMessage } from "node:http";
import { quantilesOf, type FollowOrder, type FollowResult } from "./messages.ts";

/** One of so many followers reads what the events say; the others count them. */
const READER = 20;
const agent = new Agent({ keepAlive: false, maxSockets: Infinity });
const delays: number[] = [];
let [open, lost, events, outOfOrder, isOver] = [0, 0, 0, 0, false];

function readWhole(response: IncomingMessage): void {
  let rest = "";
  let last = 0;
  response.setEncoding("utf8").on("data", (text: string) => {
    const messages = (rest + text).split("\n\n");
    rest = messages.pop() ?? "";
    for (const message of messages) {
      const id = Number(/^id: (\d+)$/m.exec(message)?.[1] ?? 0);
      const data = /^data: (.*)$/m.exec(message)?.[1];
      if (id === 0 || data === undefined) continue;
      events += 1;
      if (id <= last) outOfOrder += 1;
      last = id;
      delays.push(Date.now() - Date.parse((JSON.parse(data) as { at: string }).at));
    }
  });
}

/** Counts lines that begin an event; the mark may be cut by the border of two pieces. */
function countOnly(response: IncomingMessage): void {
  const mark = "\nid: ";
  let tail = "";
  response.setEncoding("latin1").on("data", (text: string) => {
    const all = tail + text;
    for (let at = all.indexOf(mark); at >= 0; at = all.indexOf(mark, at + 1)) events += 1;
    tail = all.slice(-(mark.length - 1));
  });
}

function follow(url: string, token: string, index: number): Promise<void> {
  return new Promise((resolve) => {
    const gone = (): void => {
      if (!isOver) lost += 1;
      resolve();
    };
    const headers = { authorization: `Bearer ${token}` };
    const request = get(url, { agent, headers }, (response) => {
      if (response.statusCode !== 200) {
        response.resume();
        return gone();
      }
      open += 1;
      (index % READER === 0 ? readWhole : countOnly)(response);
      response.once("close", gone);
      resolve();
    });
    request.once("error", gone);
  });
}

const result = (): FollowResult => ({
  open,
  lost,
  events,
  delayMilliseconds: quantilesOf(delays),
  outOfOrder,
});

process.on("message", (message: FollowOrder | "reset" | "count") => {
  if (message === "reset") {
    delays.length = 0;
    [events, outOfOrder] = [0, 0];
    process.send?.(result());
  } else if (message === "count") {
    isOver = true;
    process.send?.(result(), () => process.exit(0));
  } else {
    const { url, tokens, followers } = message;
    void (async () => {
      for (let index = 0; index < followers; index += 1)
        await follow(url, tokens[index % tokens.length] as string, index);
      process.send?.(result());
    })();
  }
});
