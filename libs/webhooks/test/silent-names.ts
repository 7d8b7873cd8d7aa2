/**
 * A network of its own, with a server of names that answers `good.test` and nothing else. Webhooks of one project
 * send to names that it leaves without an answer, then another project's sends to `good.test`.
 * Prints as JSON what came of both.
 */
import { execFileSync } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { Names } from "../src/names.ts";
import { send } from "../src/send.ts";
import { startReceiver } from "./receiver.ts";

const [resolvConf = "", silentNames = ""] = process.argv.slice(2);
execFileSync("ip", ["link", "set", "lo", "up"]);
writeFileSync(resolvConf, "nameserver 127.0.0.1\n");
execFileSync("mount", ["--bind", resolvConf, "/etc/resolv.conf"]);

const RECURSION_AVAILABLE_ANSWER = 0x8180;
const TYPE_A = 1;
const HEADER_BYTES = 12;

/** The answer to a question for `good.test`, RFC 1035, section 4; undefined for any other name. */
function answerTo(query: Buffer): Buffer | undefined {
  const labels: string[] = [];
  let at = HEADER_BYTES;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  if (labels.join(".") !== "good.test") return undefined;
  const question = query.subarray(HEADER_BYTES, at + 5);
  const isForAddress = query.readUInt16BE(at + 1) === TYPE_A;
  const header = Buffer.from(query.subarray(0, HEADER_BYTES));
  header.writeUInt16BE(RECURSION_AVAILABLE_ANSWER, 2);
  header.writeUInt16BE(isForAddress ? 1 : 0, 6);
  header.fill(0, 8);
  // A pointer to the question's name, type A, class IN, 60 s, four bytes.
  const record = Buffer.from([0xc0, HEADER_BYTES, 0, TYPE_A, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
  return Buffer.concat([header, question, ...(isForAddress ? [record] : [])]);
}

const asked = new Set<number>();
const server = createSocket("udp4", (query, { port, address }) => {
  const answer = answerTo(query);
  if (answer) server.send(answer, port, address);
  else asked.add(port);
});
server.bind(53, "127.0.0.1");
await once(server, "listening");
const receiver = await startReceiver();
const url = receiver.url.replace("127.0.0.1", "good.test");

const names = new Names();
const silent = new AbortController();
const sendTo = (project: string, to: string, signal = new AbortController().signal) =>
  send(
    { project, url: to, headers: {}, payload: "{}" },
    { names, privateAddresses: true, timeoutSeconds: 30, signal },
  );
const held = Array.from({ length: Number(silentNames) }, (_, at) =>
  sendTo("evil", `http://h${at}.evil.test/`, silent.signal).catch(() => "stopped"),
);
while (asked.size === 0) await new Promise((resolve) => setImmediate(resolve));
const began = performance.now();
const answer = await sendTo("good", url);
const seconds = (performance.now() - began) / 1000;
silent.abort(new Error("the test is over"));
const outcomes = await Promise.all(held);
console.log(JSON.stringify({ status: answer.status, error: answer.error, seconds, outcomes }));
server.close();
await receiver.close();
