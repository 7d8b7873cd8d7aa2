import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, it } from "vitest";
import { InternEvoClient } from "./client.ts";
import { ApiConnectionError, ApiProblemError, UnexpectedAnswerError } from "./errors.ts";
import { MOST_ANSWER_BYTES } from "./request.ts";

let answer: { readonly status: number; readonly type: string; readonly body: string };
const server = createServer((_, response) => {
  response.writeHead(answer.status, { "content-type": answer.type }).end(answer.body);
});
beforeAll(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve)));
afterAll(() => server.close());

const failureOf = async (status: number, type: string, body: string): Promise<unknown> => {
  answer = { status, type, body };
  const { port } = server.address() as AddressInfo;
  const client = new InternEvoClient({ baseUrl: `http://127.0.0.1:${port}/api/v1` });
  return client.getJob("a-job").then(
    (value) => expect.fail(`was taken: ${JSON.stringify(value)}`),
    (error: unknown) => error,
  );
};

const PROBLEM = "application/problem+json; charset=utf-8";
const JSON_TYPE = "application/json";

it("a refusal that says no problem is an answer of something else, not an error of this program", async () => {
  for (const body of [
    "",
    "{",
    "null",
    "[]",
    '"no"',
    "{}",
    '{"title":"x","status":"400","code":"bad-request"}',
  ])
    expect(await failureOf(400, PROBLEM, body), body).toBeInstanceOf(UnexpectedAnswerError);
  const halfSaid = '{"title":"x","status":400,"code":"bad-request","errors":[null]}';
  expect(await failureOf(400, PROBLEM, halfSaid)).toBeInstanceOf(UnexpectedAnswerError);
  // A later version may know more codes.
  const unknown = await failureOf(418, PROBLEM, '{"title":"x","status":418,"code":"teapot"}');
  expect(unknown).toBeInstanceOf(ApiProblemError);
  expect(unknown).toMatchObject({ message: "x", status: 418, code: "teapot" });
});

it("an answer that is no object is an answer of something else", async () => {
  for (const body of ["null", "[]", "7", '"yes"'])
    expect(await failureOf(200, JSON_TYPE, body), body).toBeInstanceOf(UnexpectedAnswerError);
  expect(await failureOf(200, JSON_TYPE, '{"id":')).toBeInstanceOf(ApiConnectionError);
  expect(await failureOf(200, "text/html", "<p>hello</p>")).toBeInstanceOf(UnexpectedAnswerError);
});

it.each([200, 400])("an answer of status %i that breaks off is one of a lost connection", async (status) => {
  const breaking = createServer((_, response) => {
    response.writeHead(status, {
      "content-type": status === 200 ? JSON_TYPE : PROBLEM,
      "content-length": "1000",
    });
    response.write('{"title":"x",', () => response.destroy());
  });
  await new Promise<void>((resolve) => breaking.listen(0, "127.0.0.1", resolve));
  try {
    const { port } = breaking.address() as AddressInfo;
    const client = new InternEvoClient({ baseUrl: `http://127.0.0.1:${port}/api/v1` });
    await expect(client.getJob("a-job")).rejects.toThrow(ApiConnectionError);
  } finally {
    breaking.close();
  }
});

it.each([200, 400])(
  "an answer of status %i without an end is left",
  async (status) => {
    const piece = Buffer.alloc(1 << 20, " ");
    let sent = 0;
    const endless = createServer((_, response) => {
      response.writeHead(status, { "content-type": status === 200 ? JSON_TYPE : PROBLEM });
      const go = (): void => {
        do sent += piece.length;
        while (response.write(piece));
      };
      response.on("drain", go);
      go();
    });
    await new Promise<void>((resolve) => endless.listen(0, "127.0.0.1", resolve));
    try {
      const { port } = endless.address() as AddressInfo;
      const client = new InternEvoClient({ baseUrl: `http://127.0.0.1:${port}/api/v1` });
      const signal = AbortSignal.timeout(60_000);
      await expect(client.getJob("a-job", { signal })).rejects.toThrow(UnexpectedAnswerError);
      expect(sent).toBeLessThan(2 * MOST_ANSWER_BYTES);
    } finally {
      endless.closeAllConnections();
      endless.close();
    }
  },
  90_000,
);
