import { afterAll, beforeAll, expect, it } from "vitest";
import { startConsoleStack, type ConsoleStack } from "./stack.ts";

let stack: ConsoleStack;
beforeAll(async () => {
  stack = await startConsoleStack();
}, 120_000);
afterAll(() => stack.close());

it("asks before the token of a link takes the place of a session", async () => {
  const page = await stack.browser.newPage();
  await page.goto(`${stack.url}/jobs#token=${stack.tokens.viewer}`);
  await page.getByRole("button", { name: /Signed in as .*, viewer/ }).waitFor();
  const follow = async (answer: boolean): Promise<string> => {
    const asked = page.waitForEvent("dialog").then(async (dialog) => {
      const question = dialog.message();
      await (answer ? dialog.accept() : dialog.dismiss());
      return question;
    });
    // Another address: a fragment alone loads nothing.
    await page.goto(`${stack.url}/clusters?by=${String(answer)}#token=${stack.tokens.admin}`);
    return asked;
  };
  expect(await follow(false)).toContain("another token");
  await page.getByRole("button", { name: /Signed in as .*, viewer/ }).waitFor();
  expect(page.url()).not.toContain(stack.tokens.admin);
  await follow(true);
  await page.getByRole("button", { name: /Signed in as .*, admin/ }).waitFor();
  await page.close();
});

it("takes the token of a link that opens in a page which is open already", async () => {
  const page = await stack.browser.newPage();
  await page.goto(`${stack.url}/jobs`);
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  // A fragment alone: the page stays, and only its address changes.
  const follow = (token: string): Promise<void> =>
    page.evaluate((fragment) => void (location.hash = fragment), `token=${token}`);
  await follow(stack.tokens.viewer);
  await page.getByRole("button", { name: /Signed in as .*, viewer/ }).waitFor();
  expect(page.url()).toBe(`${stack.url}/jobs`);
  const asked = page.waitForEvent("dialog").then((dialog) => dialog.accept());
  await follow(stack.tokens.admin);
  await asked;
  await page.getByRole("button", { name: /Signed in as .*, admin/ }).waitFor();
  // A page that is open already takes its own token without a question.
  await follow(stack.tokens.admin);
  await page.waitForURL(`${stack.url}/jobs`);
  await page.goto(`${stack.url}/workloads`);
  for (let back = 0; back < 3; back += 1) {
    await page.goBack();
    expect(page.url()).not.toContain("token=");
  }
  await page.close();
});
