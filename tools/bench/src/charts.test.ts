import * as Plot from "@observablehq/plot";
import { JSDOM } from "jsdom";
import { expect, it } from "vitest";
import { COLORS, renderChart } from "./charts.ts";

const bars = (label: string) =>
  renderChart({
    title: "Faster & < slower",
    subtitle: "tokens/s",
    legend: Array.from({ length: 12 }, (_, index) => ({ label: `${label} ${index}`, color: COLORS.blue })),
    plot: {
      width: 400,
      height: 200,
      y: { label: "tokens/s" },
      marks: [
        Plot.barY(
          [
            { x: "a", y: 3 },
            { x: "b", y: 1 },
          ],
          { x: "x", y: "y", fill: COLORS.blue },
        ),
      ],
    },
  });

it("draws a document of its own, with every word and every bar", () => {
  const { document } = new JSDOM(bars("series"), { contentType: "image/svg+xml" }).window;
  const words = [...document.querySelectorAll("text")].map((each) => each.textContent);
  expect(words).toEqual(
    expect.arrayContaining(["Faster & < slower", "tokens/s", "series 0", "series 11", "a", "b"]),
  );
  expect(document.querySelectorAll("[aria-label=bar] rect")).toHaveLength(2);
});

it("breaks a legend that is too long for one line, and keeps everything inside", () => {
  const { document } = new JSDOM(bars("a rather long name of a series"), { contentType: "image/svg+xml" })
    .window;
  const width = Number(document.documentElement.getAttribute("width"));
  const height = Number(document.documentElement.getAttribute("height"));
  const swatches = [...document.querySelectorAll("svg > rect[height='14']")];
  expect(new Set(swatches.map((each) => each.getAttribute("y"))).size).toBeGreaterThan(2);
  for (const each of swatches) expect(Number(each.getAttribute("x")) + 14).toBeLessThan(width);
  const inner = document.querySelector("svg svg");
  expect(Number(inner?.getAttribute("y")) + Number(inner?.getAttribute("height"))).toBeLessThanOrEqual(
    height,
  );
});

it("refuses what is no picture alone", () => {
  expect(() => renderChart({ title: "x", subtitle: "", plot: { title: "inside", marks: [] } })).toThrow(
    /is no SVG/,
  );
});
