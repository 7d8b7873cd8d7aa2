import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { deliverWebhooks } from "@internevo/webhooks";
import { afterAll, beforeAll, expect, it } from "vitest";
import { run, startApiProcess, type ApiProcess, type Ended } from "./processes.ts";

let database: TestDatabase;
let api: ApiProcess;
let status = 204;
const stop = new AbortController();
let delivering: Promise<void>;
const receiver = createServer((request, response) => {
  request.resume().on("end", () => response.writeHead(status).end());
});
beforeAll(async () => {
  process.env["INTERNEVO_WEBHOOK_PRIVATE_ADDRESSES"] = "true";
  database = await createTestDatabase();
  api = await startApiProcess(database);
  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  delivering = deliverWebhooks({
    database: database.database,
    privateAddresses: true,
    timeoutSeconds: 5,
    signal: stop.signal,
    onAttempt: () => {},
    onError: (error) => {
      throw error;
    },
  });
});
afterAll(async () => {
  stop.abort(new Error("the test is over"));
  await delivering;
  receiver.closeAllConnections();
  receiver.close();
  await api.stop();
  await database.drop();
});

const internevo = (...args: string[]): Promise<Ended> =>
  run(["webhook", ...args], { INTERNEVO_URL: api.url, INTERNEVO_TOKEN: api.token });

it("adds a webhook, tests it, shows what became of it, and removes it", async () => {
  const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`;
  const wrong = await internevo("add", "ci", url, "--events", "job.vanished");
  expect([wrong.status, wrong.stderr]).toEqual([2, expect.stringContaining("job.vanished is no event")]);
  const made = await internevo("add", "ci", url, "--events", "job.transitioned,trial.ended");
  expect(made.stdout).toMatch(/^whsec_[A-Za-z0-9+/]{43}=\n$/);
  expect(made.stderr).toMatch(/not encrypted[^]*webhook ci of project default/);
  expect((await internevo()).stdout).toMatch(/ci +default +works +0 +job\.transitioned, trial\.ended/);
  const taken = await internevo("test", "ci");
  expect([taken.status, taken.stdout]).toEqual([0, expect.stringMatching(/^taken: answered 204 in /)]);
  status = 500;
  const refused = await internevo("test", "ci");
  expect([refused.status, refused.stdout]).toEqual([
    1,
    expect.stringMatching(/^not taken: answered 500 in /),
  ]);
  expect((await internevo("show", "ci")).stdout).toMatch(/fails[^]*failing since 20/);
  const list = JSON.parse((await internevo("deliveries", "ci", "--state", "succeeded", "--json")).stdout);
  expect(list).toMatchObject([{ eventType: "webhook.test", attempts: 1 }]);
  expect((await internevo("deliveries", "ci")).stdout).toMatch(
    /webhook\.test +pending +[1-9]\d* .*answered 500/,
  );
  expect((await internevo("set", "ci", "--disable")).stdout).toMatch(/disabled +somebody disabled it/);
  expect((await internevo("replay", list[0].id)).stderr).toContain("is disabled");
  expect((await internevo("set", "ci", "--enable", "--events", "all")).stdout).toMatch(/events +all/);
  expect((await internevo("replay", list[0].id)).stdout).toBe(`delivery ${list[0].id} is sent again\n`);
  expect((await internevo("remove", "ci")).stdout).toMatch(/^webhook ci is removed \(/);
  const gone = await internevo("show", "ci");
  expect([gone.status, gone.stderr]).toEqual([4, expect.stringContaining("there is no webhook ci")]);
});

it("changes where a webhook's events are sent, and hands the token to nobody else", async () => {
  await internevo("add", "moves", "https://old.example.org/events");
  const moved = await internevo("set", "moves", "--to", "https://new.example.org/events");
  expect([moved.status, moved.stdout]).toEqual([
    0,
    expect.stringMatching(/url +https:\/\/new\.example\.org\/events/),
  ]);
  // The program's own --url names an API, also behind a command.
  const heard: unknown[] = [];
  const elsewhere = createServer((request, response) => {
    heard.push(request.headers.authorization);
    response.writeHead(500).end();
  });
  await new Promise<void>((resolve) => elsewhere.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}`;
  const refused = await internevo("set", "moves", "--url", url);
  expect(refused.status).not.toBe(0);
  expect(refused.stderr).toContain("no token is given");
  expect(refused.stderr).toContain(`belongs to INTERNEVO_URL (${api.url})`);
  expect(heard).toEqual([]);
  // The same API by another path, one that only the token's owner names, and a token that is given for it.
  const env = { INTERNEVO_TOKEN: api.token };
  for (const [args, surroundings] of [
    [["--url", `${api.url}/`], { ...env, INTERNEVO_URL: api.url }],
    [["--url", api.url], env],
    [["--url", api.url, "--token", api.token], { ...env, INTERNEVO_URL: url }],
  ] as const)
    expect(await run(["webhook", "show", "moves", ...args], surroundings)).toMatchObject({ status: 0 });
  expect(heard).toEqual([]);
  elsewhere.close();
  await internevo("remove", "moves");
});
