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
