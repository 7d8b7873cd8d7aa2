import * as Plot from "@observablehq/plot";
import { JSDOM, type SvgElement } from "jsdom";

/*
 * Pictures of the benchmarks: Observable Plot without a browser, as SVG that stands alone: white ground, black text, fonts that
 * every machine has.
 */

export interface ChartOptions {
  readonly title: string;
  /** What is drawn, in what unit, of what: one line below the title. */
  readonly subtitle: string;
  /** Colours and what they mean; none where there is one series only. */
  readonly legend?: readonly { readonly label: string; readonly color: string }[];
  readonly plot: Plot.PlotOptions;
}

/** Apart for every common kind of colour blindness, and in grey (Okabe and Ito). */
export const COLORS = {
  blue: "#0072b2",
  orange: "#e69f00",
  green: "#009e73",
  vermilion: "#d55e00",
  purple: "#cc79a7",
  sky: "#56b4e9",
  grey: "#8c8c8c",
} as const;

const FONT = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";
const MARGIN = 16;
const TITLE_SIZE = 17;
const TEXT_SIZE = 13;
/** Of a letter, in its size: wide enough for any of the fonts. */
const LETTER_WIDTH = 0.62;
const DEFAULT_WIDTH = 860;

const escaped = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

const { document } = new JSDOM("").window;

/** The legend's entries in lines that fit the width. */
function legendLines(
  legend: NonNullable<ChartOptions["legend"]>,
  width: number,
): { label: string; color: string; x: number; line: number }[] {
  let x = 0;
  let line = 0;
  return legend.map((entry) => {
    const length = 20 + entry.label.length * LETTER_WIDTH * TEXT_SIZE + 18;
    if (x > 0 && x + length > width) [x, line] = [0, line + 1];
    const place = { ...entry, x, line };
    x += length;
    return place;
  });
}

/** A chart as the text of an SVG file. */
export function renderChart({ title, subtitle, legend = [], plot }: ChartOptions): string {
  const width = plot.width ?? DEFAULT_WIDTH;
  const svg = Plot.plot({
    ...plot,
    width,
    document,
    style: { fontFamily: FONT, fontSize: `${TEXT_SIZE}px`, background: "white" },
  }) as unknown as SvgElement;
  if (svg.tagName.toLowerCase() !== "svg")
    throw new TypeError(`the plot of "${title}" is no SVG: give its title and legend to renderChart`);
  const entries = legendLines(legend, width);
  const lines = entries.length === 0 ? 0 : (entries.at(-1)?.line ?? 0) + 1;
  const legendTop = MARGIN + TITLE_SIZE + 8 + TEXT_SIZE + 12;
  const plotTop = legendTop + lines * (TEXT_SIZE + 9) + 4;
  svg.setAttribute("x", String(MARGIN));
  svg.setAttribute("y", String(plotTop));
  svg.setAttribute("color", "black");
  const total = { width: width + 2 * MARGIN, height: plotTop + Number(svg.getAttribute("height")) + MARGIN };
  const text = (x: number, y: number, size: number, content: string, weight = "normal"): string =>
    `<text x="${x}" y="${y}" font-size="${size}" font-weight="${weight}">${escaped(content)}</text>`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${total.width}" height="${total.height}" ` +
      `viewBox="0 0 ${total.width} ${total.height}" font-family="${FONT}" fill="black">`,
    `<title>${escaped(title)}</title>`,
    `<rect width="100%" height="100%" fill="white"/>`,
    text(MARGIN, MARGIN + TITLE_SIZE - 3, TITLE_SIZE, title, "bold"),
    text(MARGIN, MARGIN + TITLE_SIZE + 8 + TEXT_SIZE - 3, TEXT_SIZE, subtitle),
    ...entries.map(({ label, color, x, line }) => {
      const y = legendTop + line * (TEXT_SIZE + 9);
      return (
        `<rect x="${MARGIN + x}" y="${y}" width="14" height="14" ` +
        `fill="${color}"/>${text(MARGIN + x + 20, y + 12, TEXT_SIZE, label)}`
      );
    }),
    svg.outerHTML.replaceAll("&nbsp;", "&#160;"),
    "</svg>\n",
  ].join("\n");
}
