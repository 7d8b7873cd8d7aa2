import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "@internevo/local-stack";
import { createProject } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import {
  signInSettingsOf,
  startIdentityProvider,
  type IdentityProvider,
} from "@internevo/test-kit/identity-provider";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readability } from "./readability.ts";
import { startConsoleStack, type ConsoleStack } from "./stack.ts";

const PICTURES = process.env["INTERNEVO_PICTURES"];

let stack: ConsoleStack;
let provider: IdentityProvider;
let context: BrowserContext;
const said: string[] = [];
beforeAll(async () => {
  const publicUrl = `http://127.0.0.1:${await freePort()}`;
  provider = await startIdentityProvider(publicUrl);
  provider.people.set("s-grace", { email: "grace@example.org", groups: ["ml", "leads"] });
  provider.people.set("s-eve", { email: "eve@example.org", groups: [] });
  provider.person = "s-grace";
  stack = await startConsoleStack(
    signInSettingsOf(provider, publicUrl, "ml=nlp:operator,leads=vision:admin"),
  );
  await stack.database.transaction(async (tx) => {
    for (const name of ["nlp", "vision"]) await createProject(tx, { name });
  });
  context = await stack.browser.newContext();
}, 120_000);
afterAll(async () => {
  await stack.close();
  await provider.stop();
});

async function open(path: string): Promise<Page> {
  const page = await context.newPage();
  page.on("console", (message) => message.type() === "error" && said.push(message.text()));
  page.on("pageerror", (error) => said.push(String(error)));
  await page.goto(`${stack.url}${path}`);
  return page;
}
const account = (page: Page) => page.getByRole("button", { name: /Signed in as grace@example\.org/ });

/** A picture at both widths and in both schemes, where pictures are wanted. */
async function picture(page: Page, name: string): Promise<void> {
  if (PICTURES === undefined) return;
  mkdirSync(PICTURES, { recursive: true });
  for (const [width, height] of [
    [1440, 900],
    [390, 844],
  ] as const)
    for (const colorScheme of ["light", "dark"] as const) {
      await page.setViewportSize({ width, height });
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: join(PICTURES, `${name}-${width}-${colorScheme}.png`) });
    }
  await page.setViewportSize({ width: 1440, height: 900 });
}

describe("a person's session", () => {
  it("begins at the provider, on the page that was asked for, and is every tab's", async () => {
    const page = await open("/clusters?search=x");
    const link = page.getByRole("link", { name: "Sign in with Example" });
    await link.waitFor();
    await picture(page, "sign-in");
    expect(await readability(page, "sign-in")).toEqual([]);
    await link.click();
    await page.getByRole("heading", { name: "Clusters", exact: true }).waitFor();
    expect(page.url()).toContain(`${stack.url}/clusters`);
    const tab = await open("/jobs");
    await tab.getByText("No jobs yet").waitFor();
    // No script can read what signs it in.
    const readable = await tab.evaluate(() => JSON.stringify([document.cookie, { ...localStorage }]));
    expect(readable).not.toContain("ivo_");
    for (const each of [page, tab]) await each.close();
  }, 60_000);

  it("changes things, and acts in another of the person's places", async () => {
    const page = await open("/jobs");
    await account(page).waitFor();
    // An operator of nlp makes no tokens.
    expect(await page.getByRole("link", { name: "Tokens" }).count()).toBe(0);
    await account(page).click();
    await picture(page, "account");
    await page.getByRole("button", { name: "Act as admin in project vision" }).click();
    await page
      .getByRole("button", { name: /Signed in as grace@example\.org, admin in project vision/ })
      .waitFor();
    await page.goto(`${stack.url}/tokens`);
    await page.getByRole("button", { name: "Create a token" }).first().click();
    await page.getByLabel("Name").fill("ci");
    await page.getByRole("button", { name: "Create the token" }).click();
    await page.getByText("ci may use the API as viewer in project vision").waitFor();
    await page.close();
  }, 60_000);

  it("is kept from a link's token until the person wants that", async () => {
    // Another browser with the same session: what it stores is no other test's.
    const other = await stack.browser.newContext({ storageState: await context.storageState() });
    const page = await other.newPage();
    const asked: string[] = [];
    let answer = false;
    page.on("dialog", (dialog) => {
      asked.push(dialog.message());
      void (answer ? dialog.accept() : dialog.dismiss());
    });
    // A link that loads the page, and one that opens in a page which is open already.
    await page.goto(`${stack.url}/jobs#token=${stack.tokens.viewer}`);
    await account(page).waitFor();
    expect(asked).toEqual([expect.stringContaining("another token")]);
    await page.evaluate((fragment) => void (location.hash = fragment), `token=${stack.tokens.viewer}`);
    await eventually("the question", () => asked.length === 2);
    await account(page).waitFor();
    expect(page.url()).toBe(`${stack.url}/jobs`);
    expect(await page.evaluate(() => JSON.stringify({ ...localStorage }))).not.toContain(stack.tokens.viewer);
    answer = true;
    await page.goto(`${stack.url}/clusters#token=${stack.tokens.viewer}`);
    await page.getByRole("button", { name: /Signed in as vic, viewer/ }).waitFor();
    expect(asked).toHaveLength(3);
    await other.close();
  }, 60_000);

  it("ends in every tab, and says where to sign out of the provider", async () => {
    const page = await open("/jobs");
    const tab = await open("/clusters");
    await account(tab).waitFor();
    await account(page).click();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("link", { name: "Sign out of Example too" }).waitFor();
    // The other tab's page asks again by itself, and is refused.
    await tab.getByText("Your session has ended. Sign in again.").waitFor();
    for (const each of [page, tab]) await each.close();
  }, 60_000);

  it("does not begin for somebody without a role, who is told so", async () => {
    provider.person = "s-eve";
    await context.clearCookies();
    const page = await open("/jobs");
    await page.getByRole("link", { name: "Sign in with Example" }).click();
    await page.getByText("eve@example.org has signed in, and has no role here").waitFor();
    await page.getByLabel("Token").waitFor();
    await page.close();
  }, 60_000);

  it("said nothing on the browser's console but the refusal that ended the other tab", () => {
    expect(said.filter((text) => !text.includes("401"))).toEqual([]);
  });
});
