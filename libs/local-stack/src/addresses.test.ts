import pg from "pg";
import { expect, it } from "vitest";
import { parseNatsUrl } from "@internevo/bus";
import { natsUrl } from "./nats.ts";
import { postgresUrl } from "./postgres.ts";

const SECRETS = ["p@127.0.0.1:9999/x?q=", "a:b/c#d", "%41", "100%"];

it("addresses lead to this machine, whatever their secrets are", () => {
  for (const secret of SECRETS) {
    const { host, port, database, password } = new pg.Client(postgresUrl({ port: 5433, password: secret }));
    expect({ host, port, database, password }).toEqual({
      host: "127.0.0.1",
      port: 5433,
      database: "internevo",
      password: secret,
    });
    expect(parseNatsUrl(natsUrl({ port: 4333, token: secret }))).toMatchObject({
      servers: ["127.0.0.1:4333"],
      token: secret,
    });
  }
});
