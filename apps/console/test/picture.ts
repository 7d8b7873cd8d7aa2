// The picture of the console in README.md, of a job that has run: node apps/console/test/picture.ts LINK JOB FILE. LINK is
// what `internevo status` prints, JOB the job's id.
import { writeFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [link, job, file] = process.argv.slice(2);
if (link === undefined || job === undefined || file === undefined) {
  console.error("usage: node apps/console/test/picture.ts LINK JOB FILE");
  process.exit(2);
}
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
try {
  const page = await browser.newPage({
    viewport: { width: 1440, height: 900 },
    colorScheme: "light",
    locale: "en-GB",
  });
  const { origin, hash } = new URL(link);
  await page.goto(`${origin}/jobs/${job}${hash}`);
  await page.getByRole("heading", { name: "Chosen plan" }).waitFor();
  const clip = { x: 0, y: 0, width: 1440, height: 820 };
  writeFileSync(file, await page.screenshot({ animations: "disabled", clip }));
} finally {
  await browser.close();
}
