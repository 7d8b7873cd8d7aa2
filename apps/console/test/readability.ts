import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Pixels that the page, or a table that should have become cards, is wider than it may be. */
export const overflow = (page: Page): Promise<number> =>
  page.evaluate(() => {
    const cards = [...document.querySelectorAll(".scroll-box:has(> .cards-when-narrow)")].map((box) =>
      window.innerWidth < 768 ? box.scrollWidth - box.clientWidth : 0,
    );
    return Math.max(document.documentElement.scrollWidth - window.innerWidth, ...cards);
  });

/** The innermost elements that reach beyond the page, or beyond a table that should have become cards. */
const beyond = (page: Page): Promise<string[]> =>
  page.evaluate(() => {
    const limits = [
      [document.body, window.innerWidth] as const,
      ...[...document.querySelectorAll(".scroll-box:has(> .cards-when-narrow)")].map(
        (box) => [box, box.getBoundingClientRect().left + box.clientWidth] as const,
      ),
    ];
    const reaching = limits.flatMap(([root, limit]) =>
      [...root.querySelectorAll("*")].filter(
        (each) =>
          each.closest(".cards-when-narrow thead, details:not([open])") === null &&
          each.getBoundingClientRect().right > limit + 0.5,
      ),
    );
    const innermost = reaching.filter(
      (each) => !reaching.some((other) => other !== each && each.contains(other)),
    );
    return [
      ...new Set(
        innermost.map(
          (each) =>
            `${each.tagName.toLowerCase()}.${each.getAttribute("class") ?? ""} "${(each.textContent ?? "").slice(0, 40)}"`,
        ),
      ),
    ].slice(0, 5);
  });

/**
 * What keeps a page from being read: too wide, or a serious fault by axe; wide and light, narrow and dark
 * with every section open.
 */
export async function readability(page: Page, path: string): Promise<string[]> {
  const findings: string[] = [];
  for (const [width, colorScheme] of [
    [1280, "light"],
    [390, "dark"],
  ] as const) {
    await page.setViewportSize({ width, height: 844 });
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await page.locator(`html[data-mantine-color-scheme="${colorScheme}"]`).waitFor();
    const folded = page.locator('.fold-button[aria-expanded="false"]');
    while ((await folded.count()) > 0) await folded.first().click();
    const excess = await overflow(page);
    if (excess > 0)
      findings.push(`${path} at ${width}: ${excess} px too wide: ${(await beyond(page)).join(", ")}`);
    // By the debugger: the page's own policy lets no foreign script in.
    await page.evaluate(AXE);
    // Names, roles and structure are the same in both looks; colours are not.
    const options = {
      resultTypes: ["violations"],
      ...(colorScheme === "dark"
        ? { runOnly: { type: "rule", values: ["color-contrast", "scrollable-region-focusable"] } }
        : {}),
    };
    const violations = await page.evaluate(async (given) => {
      const axe = (
        window as unknown as {
          axe: {
            run: (
              options: unknown,
            ) => Promise<{
              violations: { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[];
            }>;
          };
        }
      ).axe;
      return (await axe.run(given)).violations;
    }, options);
    for (const { id, impact, nodes } of violations)
      if (impact === "serious" || impact === "critical")
        findings.push(
          `${path} at ${width} ${colorScheme}: ${id}: ${nodes[0]?.html} ${nodes[0]?.failureSummary}`,
        );
  }
  return findings;
}
