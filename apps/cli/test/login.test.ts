import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort, makeDataDirectory, processStart } from "@internevo/local-stack";
import {
  signInSettingsOf,
  startIdentityProvider,
  type IdentityProvider,
} from "@internevo/test-kit/identity-provider";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { run, start, startApiProcess, type ApiProcess } from "./processes.ts";

let database: TestDatabase;
let provider: IdentityProvider;
let api: ApiProcess;
let directory: string;
let env: NodeJS.ProcessEnv;
beforeAll(async () => {
  database = await createTestDatabase();
  const publicUrl = `http://127.0.0.1:${await freePort()}`;
  provider = await startIdentityProvider(publicUrl);
  provider.people.set("s-grace", { email: "grace@example.org", groups: ["ml"] });
  provider.person = "s-grace";
  api = await startApiProcess(database, signInSettingsOf(provider, publicUrl, "ml=operator"));
  directory = await mkdtemp(join(tmpdir(), "internevo-login-"));
  env = { XDG_CONFIG_HOME: directory, INTERNEVO_DATA_DIRECTORY: join(directory, "no-stack") };
}, 60_000);
afterAll(async () => {
  await api.stop();
  await provider.stop();
  await database.drop();
  await rm(directory, { recursive: true });
});

describe("internevo login", () => {
  const file = (): string => join(directory, "internevo", "logins.json");

  it("waits for the code that a person enters in a browser, and keeps what it gets to itself", async () => {
    const login = start(["login", "--url", `${api.url}/`], env);
    await login.says("stderr", "enter the code ");
    const code = /enter the code (\S+)/.exec(login.stderr())?.[1] ?? "";
    await provider.enterDeviceCode(code);
    const { status, stdout, stderr } = await login.ended;
    expect([status, stdout]).toEqual([0, `grace@example.org is logged in to ${api.url} as operator\n`]);
    expect(stderr).toContain(`Open ${provider.issuer}/device?user_code=${code} in a browser.`);
    expect((await stat(file())).mode & 0o777).toBe(0o600);
    expect(stderr).not.toContain("goes first");
    // Nothing else names the installation, or the token.
    const who = await run(["whoami"], env);
    expect([who.status, who.stdout]).toEqual([0, "grace@example.org operator\n"]);
    expect((await run(["whoami", "--url", api.url], env)).stdout).toBe(who.stdout);
    // What is said on the command line goes first.
    expect((await run(["whoami", "--url", api.url, "--token", api.token], env)).stdout).toBe(
      "local-stack admin\n",
    );
  }, 60_000);

  it("says what commands use before it: a local stack that runs here, or INTERNEVO_URL", async () => {
    const dataDirectory = join(directory, "stack");
    makeDataDirectory(dataDirectory);
    const now = new Date().toISOString();
    // As `internevo up` writes it, of another installation than the login's.
    const who = { pid: process.pid, pidStart: processStart(process.pid) };
    const record = { ...who, readyAt: now, apiUrl: "http://127.0.0.1:9", apiToken: "t" };
    await writeFile(join(dataDirectory, "stack.json"), JSON.stringify(record));
    for (const [more, first] of [
      [{ INTERNEVO_DATA_DIRECTORY: dataDirectory }, `The local stack in ${dataDirectory} goes first`],
      [{ INTERNEVO_URL: "http://127.0.0.1:9" }, "INTERNEVO_URL (http://127.0.0.1:9) goes first"],
    ] as const) {
      const login = start(["login", "--url", api.url], { ...env, ...more });
      await login.says("stderr", "enter the code ");
      await provider.enterDeviceCode(/enter the code (\S+)/.exec(login.stderr())?.[1] ?? "");
      const { status, stderr } = await login.ended;
      expect([status, stderr]).toEqual([0, expect.stringContaining(first)]);
      expect(stderr).toContain(`--url ${api.url}`);
    }
  }, 60_000);

  it("ends by logout, here and at the API", async () => {
    const kept = JSON.parse(await readFile(file(), "utf8")) as { logins: Record<string, { token: string }> };
    const { token } = kept.logins[api.url]!;
    const out = await run(["logout"], env);
    expect([out.status, out.stdout, out.stderr]).toEqual([0, `logged out of ${api.url}\n`, ""]);
    expect(await readFile(file(), "utf8")).not.toContain(token);
    const after = await run(["whoami", "--url", api.url, "--token", token], env);
    expect([after.status, after.stderr]).toEqual([expect.any(Number), expect.stringContaining("not valid")]);
    expect((await run(["whoami"], env)).stderr).toContain("internevo login");
    expect((await run(["logout"], env)).stderr).toContain("no installation is named");
    expect((await run(["logout", "--url", api.url], env)).stderr).toContain("nobody is logged in");
  });

  it("says what is wrong where it cannot log in", async () => {
    const other = await createTestDatabase();
    const tokensOnly = await startApiProcess(other);
    const none = await run(["login", "--url", tokensOnly.url], env);
    expect(none.status).not.toBe(0);
    expect(none.stderr).toContain("has no provider of identities");
    await tokensOnly.stop();
    await other.drop();
    expect((await run(["login", "--url", "ftp://x"], env)).stderr).toContain("is not an http or https URL");
    await writeFile(file(), "{}");
    const damaged = await run(["whoami"], env);
    expect(damaged.stderr).toContain(`${file()}`);
    expect(damaged.stderr).toContain("delete it, and log in again");
  }, 60_000);
});
