// One process that attacks: so many connections of one token, each of which sends its next request when the last was
// answered. Told by its parent what to send; says how many answers of each status came.
import { connect } from "node:net";

export interface Attack {
  readonly port: number;
  readonly connections: number;
  /** Requests that connections send in turn, as bytes of HTTP/1.1. */
  readonly requests: readonly string[];
  /** So much of the request is sent, and then nothing more; absent: all of it. */
  readonly onlyBytes?: number;
}

const END_OF_HEAD = Buffer.from("\r\n\r\n");

function open({ port, requests, onlyBytes }: Attack, number: number, statuses: Record<string, number>): void {
  const socket = connect(port, "127.0.0.1");
  let at = number;
  let head = Buffer.alloc(0);
  let left = -1;
  const send = (): void => {
    const text = requests[at++ % requests.length] ?? "";
    socket.write(onlyBytes === undefined ? text : text.slice(0, onlyBytes));
  };
  socket.on("connect", send).on("error", () => undefined);
  socket.on("close", () => {
    statuses["closed"] = (statuses["closed"] ?? 0) + 1;
    if (onlyBytes === undefined) setTimeout(() => open({ port, requests, connections: 1 }, at, statuses), 20);
  });
  socket.on("data", (data) => {
    if (left < 0) {
      head = Buffer.concat([head, data]);
      const end = head.indexOf(END_OF_HEAD);
      if (end < 0) return;
      const text = head.subarray(0, end).toString("latin1");
      const status = text.split(" ")[1] ?? "none";
      statuses[status] = (statuses[status] ?? 0) + 1;
      left = Number(/content-length: (\d+)/i.exec(text)?.[1] ?? 0);
      data = head.subarray(end + END_OF_HEAD.length);
      head = Buffer.alloc(0);
    }
    left -= data.length;
    if (left > 0) return;
    left = -1;
    if (onlyBytes === undefined) send();
  });
}

process.on("message", (attack: Attack) => {
  const statuses: Record<string, number> = {};
  for (let at = 0; at < attack.connections; at += 1) open(attack, at, statuses);
  setInterval(() => process.send?.(statuses), 500).unref();
});
process.on("disconnect", () => process.exit());
