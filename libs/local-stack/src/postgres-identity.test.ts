import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { findPostgres } from "./postgres-binaries.ts";
import { preparePostgresHome } from "./postgres-identity.ts";
import { startLocalStack } from "./stack.ts";

let directory: string;
beforeEach(() => (directory = mkdtempSync(join(tmpdir(), "internevo-identity-"))));
afterEach(() => rmSync(directory, { recursive: true }));

const put = (name: string, text = ""): void => writeFileSync(join(directory, name), text);

describe("a directory of Postgres", () => {
  it("that a restore did not make is refused before anything in it runs", async () => {
    for (const name of ["postgres", "postgres-identity", "postgres-location"]) {
      if (name === "postgres") mkdirSync(join(directory, name));
      else put(name, "self");
      if (name === "postgres") put("postgres/internevo-made");
      const starting = startLocalStack({
        dataDirectory: directory,
        services: [],
        databaseUrl: "",
        natsUrl: "nats://none",
        isRestore: true,
      });
      await expect(starting, name).rejects.toMatchObject({
        code: "conflict",
        details: [{ field: "dataDirectory", value: join(directory, name) }],
      });
      expect(existsSync(join(directory, "logs", "postgres.log"))).toBe(false);
      rmSync(join(directory, name), { recursive: true });
    }
  });

  it("elsewhere is one of its own, and no other's", () => {
    const other = join(directory, "other");
    mkdirSync(join(other, "postgres"), { recursive: true });
    writeFileSync(join(other, "postgres", "theirs"), "");
    put("postgres-identity", "relocated");
    for (const place of [other, "/var/lib/internevo/../other", "/var/lib/internevo"]) {
      put("postgres-location", place);
      expect(() => preparePostgresHome(findPostgres(), directory), place).toThrow("names no folder of");
    }
    expect(readdirSync(join(other, "postgres"))).toEqual(["theirs"]);
    put("postgres-identity", "anybody");
    expect(() => preparePostgresHome(findPostgres(), directory)).toThrow("names no way to run Postgres");
  });
});
