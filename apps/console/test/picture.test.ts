// The picture of the console in README.md, taken anew: INTERNEVO_PICTURE=docs/images/console.png vitest run apps/console/test/picture.test.ts
import { expect, it } from "vitest";
import { seeder } from "./seed.ts";
import { startConsoleStack } from "./stack.ts";

const path = process.env["INTERNEVO_PICTURE"];

it.runIf(path)("takes a picture of a job that has ended", async () => {
  const stack = await startConsoleStack();
  try {
    const { id } = await seeder(stack.database).succeeded("example");
    const page = await stack.browser.newPage({
      viewport: { width: 1440, height: 900 },
      colorScheme: "light",
      locale: "en-GB",
    });
    await page.goto(`${stack.url}/jobs/${id}#token=${stack.tokens.admin}`);
    await page.getByText("Why plans were rejected").waitFor();
    await page.getByRole("log").getByText("training starts").waitFor();
    // Down to the chosen plan.
    const clip = { x: 0, y: 0, width: 1440, height: 764 };
    const picture = await page.screenshot({ path: path as string, animations: "disabled", clip });
    expect(picture.length).toBeLessThan(300_000);
  } finally {
    await stack.close();
  }
});
