import type { BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startConsoleStack, type ConsoleStack } from "./stack.ts";

let stack: ConsoleStack;
let context: BrowserContext;
let viewerContext: BrowserContext;

async function open(path: string, role: "admin" | "viewer" = "admin"): Promise<Page> {
  // Tabs of one browser are one person's.
  const page = await (role === "admin" ? context : viewerContext).newPage();
  await page.goto(`${stack.url}${path}#token=${stack.tokens[role]}`);
  await page.locator("h1").waitFor();
  return page;
}

beforeAll(async () => {
  stack = await startConsoleStack();
  [context, viewerContext] = await Promise.all([stack.browser.newContext(), stack.browser.newContext()]);
}, 120_000);
afterAll(() => stack.close());

describe("signing in", () => {
  it("refuses a wrong token in words, takes a right one, and forgets it on the way out", async () => {
    const page = await context.newPage();
    await page.goto(stack.url);
    await page.getByText("On a shared installation, ask its administrator for a token.").waitFor();
    await page.getByLabel("Token").fill("not-a-token");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("This token is not accepted").waitFor();
    await page.getByLabel("Token").fill(stack.tokens.admin);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("No jobs yet").waitFor();
    await page.getByText("npx internevo submit job.yaml").waitFor();
    await page.getByRole("button", { name: /Signed in as ada, admin/ }).click();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Token").waitFor();
    expect(await page.evaluate(() => JSON.stringify({ ...sessionStorage, ...localStorage }))).not.toContain(
      stack.tokens.admin,
    );
    await page.close();
  });

  it("signs in every tab, keeps them signed in past a bad link, and signs all of them out", async () => {
    const first = await open("/jobs");
    // As a link that is opened in a new tab: without a token.
    const second = await context.newPage();
    await second.goto(`${stack.url}/clusters`);
    await second.getByRole("heading", { name: "Clusters", exact: true }).waitFor();
    const third = await context.newPage();
    // Whoever is signed in is asked first.
    third.once("dialog", (dialog) => void dialog.accept());
    await third.goto(`${stack.url}/jobs#token=not-a-token`);
    await third.getByText("This token is not accepted").waitFor();
    await third.getByText("npx internevo status").waitFor();
    await second.reload();
    await second.getByRole("heading", { name: "Clusters", exact: true }).waitFor();
    await second.getByRole("button", { name: /Signed in as ada/ }).click();
    await second.getByRole("button", { name: "Sign out" }).click();
    await first.getByLabel("Token").waitFor();
    // And back in: what one tab does, all see.
    await third.getByLabel("Token").fill(stack.tokens.admin);
    await third.getByRole("button", { name: "Sign in" }).click();
    for (const page of [first, second])
      await page.getByRole("button", { name: /Signed in as ada/ }).waitFor();
    for (const page of [first, second, third]) await page.close();
  });

  it("takes the token out of the address at once", async () => {
    const page = await open("/jobs");
    expect(page.url()).toBe(`${stack.url}/jobs`);
    await page.reload();
    await page.getByRole("heading", { name: "Jobs", exact: true }).waitFor();
    await page.close();
  });

  it("shows a viewer no action that the API would refuse", async () => {
    const page = await open("/jobs", "viewer");
    expect(await page.getByRole("link", { name: "Submit a job" }).count()).toBe(0);
    expect(await page.getByRole("link", { name: "Dead letters" }).count()).toBe(0);
    await page.close();
  });
});
