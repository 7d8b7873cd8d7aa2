import type { MemoryMap } from "@internevo/contracts";
import {
  formatCounted,
  formatInteger,
  formatPercent,
  memoryLineLook,
  memoryLineName,
  SERIES_COLOURS,
  SERIES_INK,
  SERIES_PATTERNS,
  type SeriesLook,
  type SeriesPattern,
} from "@internevo/domain";
import { scaleLinear } from "d3-scale";
import type { Line, Region } from "./regions.ts";
import type { PassSpan, StepClock } from "@internevo/simulator";

/** Automatic: by what the reader's browser prefers. */
export type Theme = "automatic" | "light" | "dark";

export interface PictureOptions {
  /** What the plan is of, and the plan. */
  readonly title: string;
  readonly subtitle: string;
  readonly theme?: Theme;
}

/** A class of the picture's style for each colour and pattern of a line. */
const looksOf = (line: string): string => {
  const { colour, pattern } = memoryLineLook(line);
  return pattern === "plain" ? `c${colour}` : `c${colour} ${pattern}`;
};
const idOf = ({ colour, pattern }: SeriesLook): string => `${pattern}-${colour}`;

/** Side of a pattern's tile in pixels. */
const TILE = 5;
const INKED: Readonly<Record<SeriesPattern, string>> = {
  plain: "",
  stripes: `<rect class="ink" width="${TILE / 2}" height="${TILE}"/>`,
  bars: `<rect class="ink" width="${TILE / 2}" height="${TILE}"/>`,
  dots: `<circle class="ink" cx="${TILE / 2}" cy="${TILE / 2}" r="1.3"/>`,
};
/** Stripes lean, bars stand. */
function patternsSvg(lines: readonly string[]): string {
  const looks = new Map(
    lines
      .map(memoryLineLook)
      .filter(({ pattern }) => pattern !== "plain")
      .map((look) => [idOf(look), look]),
  );
  return `<defs>${[...looks].map(([id, { colour, pattern }]) => `<pattern id="${id}" width="${TILE}" height="${TILE}" patternUnits="userSpaceOnUse"${pattern === "stripes" ? ' patternTransform="rotate(45)"' : ""}><rect class="c${colour}" width="${TILE}" height="${TILE}"/>${INKED[pattern]}</pattern>`).join("")}</defs>`;
}

const WIDTH = 1240;
const HEIGHT = 710;
const PLOT = { left: 84, top: 118, right: 900, bottom: 656 } as const;
const LABELS = { x: 936, gap: 19 } as const;
/** Text narrower than this is left out, in pixels a character. */
const CHARACTER = 6.4;
/** Above so many rectangles those of a line become one path, without a text for each. */
const MOST_RECTANGLES = 2500;

const escape = (text: string): string =>
  text.replace(
    /[&<>"]/g,
    (character) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[character] as string,
  );
const px = (value: number): string => String(Math.round(value * 100) / 100);

const MIB = 2 ** 20;
/** Mebibytes with three figures, and thousands apart. */
export function mebibytes(bytes: number): string {
  const value = bytes / MIB;
  const digits = value === 0 ? 0 : [100, 10, 1].filter((least) => value < least).length;
  return value > 0 && value < 0.001
    ? "< 0.001 MiB"
    : `${digits === 0 ? formatInteger(value) : value.toFixed(digits)} MiB`;
}

function styleOf(theme: Theme): string {
  const rules = (mode: "light" | "dark"): string => {
    const [paper, ink, dim, hair] =
      mode === "light"
        ? ["#ffffff", "#1b1f24", "#59626e", "#d5dae0"]
        : ["#14171c", "#e9edf2", "#a3adba", "#353c46"];
    return [
      `.paper{fill:${paper}}`,
      `text{fill:${ink}}`,
      `text.dim{fill:${dim}}`,
      `.hair{stroke:${hair}}`,
      `.leader{stroke:${dim}}`,
      `.forward{fill:${mode === "light" ? "#e3e9f1" : "#2a323d"}}`,
      `.backward{fill:${mode === "light" ? "#cdd8e6" : "#3a4656"}}`,
      ...SERIES_COLOURS[mode].map((colour, index) => `.c${index}{fill:${colour}}`),
      `.ink{fill:${SERIES_INK[mode]}}`,
    ].join("");
  };
  const common =
    "text{font-family:'Inter','Segoe UI','Helvetica Neue',Arial,sans-serif;font-size:12px}.title{font-size:19px;font-weight:600}.number{font-variant-numeric:tabular-nums}.end{text-anchor:end}.middle{text-anchor:middle}.planned{opacity:.16}.edge{stroke-width:.5;stroke-opacity:.55}.hair{stroke-width:1}.leader{stroke-width:.75;fill:none}";
  // After the colours: a line with a pattern has its pattern's.
  const patterns = SERIES_PATTERNS.filter((pattern) => pattern !== "plain")
    .flatMap((pattern) =>
      SERIES_COLOURS.light.map(
        (_, colour) => `.c${colour}.${pattern}{fill:url(#${idOf({ colour, pattern })})}`,
      ),
    )
    .join("");
  return theme === "automatic"
    ? `${common}${rules("light")}@media (prefers-color-scheme: dark){${rules("dark")}}${patterns}`
    : common + rules(theme) + patterns;
}

/** Places labels near where they belong, apart from one another, inside [top, bottom]. */
function spread(wanted: readonly number[], gap: number, top: number, bottom: number): number[] {
  const places = wanted.map((y) => Math.max(y, top));
  for (let i = 1; i < places.length; i += 1)
    places[i] = Math.max(places[i] as number, (places[i - 1] as number) + gap);
  for (let i = places.length - 1, most = bottom; i >= 0; i -= 1, most -= gap)
    places[i] = Math.min(places[i] as number, most);
  return places;
}

interface Axes {
  readonly x: (time: number) => number;
  readonly y: (byte: number) => number;
}

const box = ({ x, y }: Axes, from: number, to: number, offset: number, bytes: number): string =>
  `x="${px(x(from))}" y="${px(y(offset))}" width="${px(x(to) - x(from))}" ` +
  `height="${px(y(offset + bytes) - y(offset))}"`;

function regionsSvg({ line, regions }: Line, axes: Axes, asPath: boolean): string {
  const kind = looksOf(line);
  if (asPath) {
    const parts = regions.flatMap(({ offset, bytes, spans }) =>
      spans.map(
        ({ from, to }) =>
          `M${px(axes.x(from))} ` +
          `${px(axes.y(offset))}H${px(axes.x(to))}V${px(axes.y(offset + bytes))}H${px(axes.x(from))}Z`,
      ),
    );
    return `<path class="${kind}" d="${parts.join("")}"/>`;
  }
  const title = ({ name, offset, bytes, when, sharesWith }: Region): string =>
    `<title>${escape(`${name}\n${mebibytes(bytes)} from ${mebibytes(offset)}\nin use: ${when}${sharesWith.length > 0 ? `\nshares its bytes with ${sharesWith.join(", ")}` : ""}`)}</title>`;
  return regions
    .map(
      (region) =>
        `<g>${title(region)}${region.spans.map(({ from, to }) => `<rect class="${kind} edge" ${box(axes, from, to, region.offset, region.bytes)}/>`).join("")}</g>`,
    )
    .join("");
}

/** The strip of passes above the plot: forward and backward, and what was left out. */
function passesSvg(passes: readonly PassSpan[], { update }: StepClock, { x }: Axes): string {
  const top = PLOT.top - 30;
  const height = 20;
  const cell = (from: number, to: number, kind: string, label: string, title: string): string => {
    const width = x(to) - x(from);
    const text =
      width >= label.length * CHARACTER + 4
        ? `<text class="middle number" x="${px((x(from) + x(to)) / 2)}" y="${top + 14}">${escape(label)}</text>`
        : "";
    return (
      `<g><title>${escape(title)}</title><rect class="${kind}" x="${px(x(from) + 0.5)}" ` +
      `y="${top}" width="${px(Math.max(0.5, width - 1))}" height="${height}" rx="3"/>${text}</g>`
    );
  };
  const shown = passes.filter((pass) => pass.shown);
  const cells = shown.map(({ from, to, pass, label }) =>
    cell(from, to, pass, label, `${pass} pass of micro-batch ${label.slice(1)}`),
  );
  const hidden = passes.filter((pass) => !pass.shown);
  const [first] = hidden;
  if (first)
    cells.push(
      `<g><title>${formatCounted(hidden.length, "more pass", "more passes")}</title><text ` +
        `class="middle dim" x="${px((x(first.from) + x(first.to)) / 2)}" y="${top + 14}">⋯</text></g>`,
    );
  cells.push(cell(update.from, update.to, "forward", "update", "gradients are reduced, parameters updated"));
  return cells.join("");
}

/** Address against time of one step: what is planned (pale) and what is in use (full). */
export function memoryPicture(
  map: MemoryMap,
  lines: readonly Line[],
  clock: StepClock,
  options: PictureOptions,
): string {
  const x = scaleLinear().domain([0, clock.length]).range([PLOT.left, PLOT.right]);
  const y = scaleLinear().domain([0, map.arenaBytes]).range([PLOT.top, PLOT.bottom]);
  const axes: Axes = { x, y };
  const rectangles = lines.reduce(
    (sum, { regions }) => sum + regions.reduce((all, { spans }) => all + spans.length, 0),
    0,
  );
  const scale = scaleLinear().domain([0, map.arenaBytes / MIB]);
  const ticks = scale
    .ticks(8)
    .map(
      (value) =>
        `<line class="hair" x1="${PLOT.left - 5}" x2="${PLOT.left}" y1="${px(y(value * MIB))}" y2="${px(y(value * MIB))}"/><text class="end number dim" x="${PLOT.left - 9}" y="${px(y(value * MIB) + 4)}">${scale.tickFormat(8)(value)}</text>`,
    );
  const boundaries = clock.passes
    .filter(({ shown }) => shown)
    .map(
      ({ from }) =>
        `<line class="hair" x1="${px(x(from))}" x2="${px(x(from))}" y1="${PLOT.top}" y2="${PLOT.bottom}"/>`,
    );
  const planned = lines.map(
    ({ line, offset, bytes }) =>
      `<rect class="${looksOf(line)} planned" ${box(axes, 0, clock.length, offset, bytes)}/>`,
  );
  const separators = lines
    .slice(1)
    .map(
      ({ offset }) =>
        `<line class="hair" x1="${PLOT.left}" x2="${PLOT.right}" y1="${px(y(offset))}" y2="${px(y(offset))}"/>`,
    );
  const middles = lines.map(({ offset, bytes }) => y(offset + bytes / 2));
  const places = spread(middles, LABELS.gap, PLOT.top + 6, PLOT.bottom - 4);
  const labels = lines.map(({ line, bytes }, index) => {
    const [from, to] = [middles[index] as number, places[index] as number];
    const share = formatPercent(bytes / map.arenaBytes);
    return (
      `<path class="leader" d="M${PLOT.right + 3} ${px(from)}L${LABELS.x - 22} ${px(to)}H${LABELS.x - 16}"/><rect class="${looksOf(line)}" x="${LABELS.x - 12}" y="${px(to - 5)}" width="10" height="10" rx="2"/>` +
      `<text x="${LABELS.x + 4}" y="${px(to + 4)}">${escape(memoryLineName(line))}</text><text class="end number" x="${LABELS.x + 238}" y="${px(to + 4)}">${escape(mebibytes(bytes))}</text><text class="end number dim" x="${LABELS.x + 290}" y="${px(to + 4)}">${escape(share)}</text>`
    );
  });
  const hidden = clock.passes.filter(({ shown }) => !shown).length;
  const note = `Time is the order of work of one step, a backward pass twice as long as a forward one; it was not measured. Pale: planned, not in use then.${hidden > 0 ? ` ⋯ stands for ${formatCounted(hidden, "more pass", "more passes")}.` : ""}`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" role="img" aria-label="${escape(options.title)}">
<style>${styleOf(options.theme ?? "automatic")}</style>
${patternsSvg(lines.map(({ line }) => line))}
<rect class="paper" width="${WIDTH}" height="${HEIGHT}"/>
<text class="title" x="${PLOT.left}" y="38">${escape(options.title)}</text>
<text class="dim" x="${PLOT.left}" y="60">${escape(options.subtitle)}</text>
${passesSvg(clock.passes, clock, axes)}
<g>${planned.join("")}</g>
<g>${lines.map((line) => regionsSvg(line, axes, rectangles > MOST_RECTANGLES)).join("\n")}</g>
<g>${boundaries.join("")}${separators.join("")}</g>
<rect class="hair" fill="none" x="${PLOT.left}" y="${PLOT.top}" width="${PLOT.right - PLOT.left}" height="${PLOT.bottom - PLOT.top}"/>
<g>${ticks.join("")}</g>
<text class="dim middle" transform="translate(22 ${(PLOT.top + PLOT.bottom) / 2}) rotate(-90)">address in the arena, MiB</text>
<text class="dim" x="${PLOT.left}" y="${PLOT.bottom + 24}">${escape(note)}</text>
<g>${labels.join("\n")}</g>
</svg>
`;
}
