import { scaleLinear, scaleLog, type ScaleLogarithmic } from "d3-scale";

export interface ChartPoint {
  readonly x: number;
  /** Null: there is none at this x, and the line is broken. */
  readonly y: number | null;
  /** Shown when the reader points at it. */
  readonly title: string;
}

/** One curve over the common x. */
export interface Panel {
  readonly label: string;
  readonly points: readonly ChartPoint[];
  readonly format: (value: number) => string;
  /** A level that is not to be exceeded. */
  readonly limit?: { readonly value: number; readonly label: string };
  /** Between points the left one holds, as on a front of plans; otherwise straight. */
  readonly steps?: boolean;
  /** Values that span a decade or more have a logarithmic axis: a linear one squeezes the small ones. */
  readonly logWhereWide?: boolean;
}

export interface Chart {
  readonly title: string;
  readonly subtitle: string;
  readonly xLabel: string;
  readonly formatX: (value: number) => string;
  /** Values of x that are marked; default: round ones. */
  readonly xTicks?: readonly number[];
  readonly logX: boolean;
  readonly panels: readonly Panel[];
}

const WIDTH = 860;
const PANEL = { height: 230, gap: 46, left: 96, right: 812 } as const;
const TOP = 92;

const escape = (text: string): string =>
  text.replace(
    /[&<>"]/g,
    (character) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[character] as string,
  );
const px = (value: number): string => String(Math.round(value * 100) / 100);

const STYLE = [
  "text{font-family:'Inter','Segoe UI','Helvetica Neue',Arial,sans-serif;font-size:12px;fill:#1b1f24}.title{font-size:18px;font-weight:600}.dim{fill:#59626e}.end{text-anchor:end}.middle{text-anchor:middle}",
  ".paper{fill:#fff}.hair{stroke:#e3e7ec}.line{fill:none;stroke:#2f6db5;stroke-width:2}.dot{fill:#2f6db5}.none{fill:none;stroke:#b04a3a;stroke-width:1.6}.limit{stroke:#b04a3a;stroke-dasharray:5 4}.limit-label{fill:#b04a3a}",
  "@media (prefers-color-scheme:dark){text{fill:#e9edf2}.dim{fill:#a3adba}.paper{fill:#14171c}.hair{stroke:#2b313a}.line{stroke:#6aa5e8}.dot{fill:#6aa5e8}.none,.limit{stroke:#e58876}.limit-label{fill:#e58876}}",
].join("");

const DECADE = 10;
export const spansDecade = (low: number, high: number): boolean => low > 0 && high >= DECADE * low;
const MOST_TICKS = 8;
/** 1, 2 and 5 of each decade, or whole decades where these are too many. */
function roundTicks(scale: ScaleLogarithmic<number, number>): number[] {
  const ticks = scale.ticks();
  const leading = (value: number): number => Number(value.toExponential(0)[0]);
  return (
    [[1, 2, 5], [1, 3], [1]]
      .map((digits) => ticks.filter((value) => digits.includes(leading(value))))
      .find((some) => some.length <= MOST_TICKS) ??
    ticks.filter((_, index) => index % Math.ceil(ticks.length / MOST_TICKS) === 0)
  );
}

/** Width of a character of a label, in pixels, rather too wide than too narrow. */
const CHARACTER = 7.2;

/**
 * Values whose labels do not touch; of the others the first and the last are kept rather than those between.
 */
function ticksOf(
  values: readonly number[],
  x: (value: number) => number,
  format: (value: number) => string,
): number[] {
  const half = (value: number): number => (format(value).length * CHARACTER) / 2 + 3;
  const apart = (left: number, right: number): boolean => x(left) + half(left) <= x(right) - half(right);
  const last = values.at(-1);
  const kept: number[] = [];
  for (const value of values.slice(0, -1)) {
    const before = kept.at(-1);
    if ((before === undefined || apart(before, value)) && (last === undefined || apart(value, last)))
      kept.push(value);
  }
  return last === undefined ? kept : [...kept, last];
}

function panelSvg(
  panel: Panel,
  x: (value: number) => number,
  top: number,
  xTicks: readonly number[],
): string {
  const { points, format, limit, label, steps } = panel;
  const bottom = top + PANEL.height;
  const known = points.flatMap(({ y }) => (y === null ? [] : [y]));
  const most = Math.max(
    ...known,
    ...(limit && limit.value <= 2 * Math.max(...known) ? [limit.value] : []),
    0,
  );
  const lowest = Math.min(...known);
  const isLog = panel.logWhereWide === true && known.length > 1 && spansDecade(lowest, most);
  const scale = isLog
    ? scaleLog()
        .domain([lowest / 1.15, most * 1.15])
        .range([bottom, top])
    : scaleLinear()
        .domain([0, most > 0 ? most * 1.06 : 1])
        .range([bottom, top])
        .nice(5);
  const grid = (isLog ? roundTicks(scale as ScaleLogarithmic<number, number>) : scale.ticks(5)).map(
    (value) =>
      `<line class="hair" x1="${PANEL.left}" x2="${PANEL.right}" y1="${px(scale(value))}" y2="${px(scale(value))}"/><text class="end dim" x="${PANEL.left - 8}" y="${px(scale(value) + 4)}">${escape(format(value))}</text>`,
  );
  const columns = xTicks.map(
    (value) => `<line class="hair" x1="${px(x(value))}" x2="${px(x(value))}" y1="${top}" y2="${bottom}"/>`,
  );
  let path = "";
  let previous: { x: number; y: number } | undefined;
  for (const point of points) {
    const here = point.y === null ? undefined : { x: x(point.x), y: scale(point.y) };
    if (here && previous && steps === true) path += `H${px(here.x)}V${px(here.y)}`;
    else if (here) path += `${previous ? "L" : "M"}${px(here.x)} ${px(here.y)}`;
    previous = here;
  }
  const dots = points.map((point) => {
    const at = px(x(point.x));
    const title = `<title>${escape(point.title)}</title>`;
    return point.y === null
      ? `<g>${title}<path class="none" d="M${px(x(point.x) - 4)} ${bottom - 8}l8 8m0 -8l-8 8"/></g>`
      : `<g>${title}<circle class="dot" cx="${at}" cy="${px(scale(point.y))}" r="${points.length > 80 ? 1.8 : 3.6}"/></g>`;
  });
  const bound =
    limit && limit.value <= (scale.domain()[1] as number)
      ? `<line class="limit" x1="${PANEL.left}" x2="${PANEL.right}" y1="${px(scale(limit.value))}" y2="${px(scale(limit.value))}"/><text class="end limit-label" x="${PANEL.right}" y="${top - 10}">– – ${escape(limit.label)}</text>`
      : "";
  return `<g><text x="${PANEL.left}" y="${top - 10}">${escape(label)}</text>${grid.join("")}${columns.join("")}<path class="line" d="${path}"/>${dots.join("")}${bound}</g>`;
}

/** Curves over one x, one panel below the other, as SVG; where there is no value stands a cross. */
export function chartSvg({ title, subtitle, xLabel, formatX, xTicks, logX, panels }: Chart): string {
  const xs = panels.flatMap(({ points }) => points.map((point) => point.x));
  const [least, most] = [Math.min(...xs), Math.max(...xs)];
  const isLog = logX && least > 0 && most > least;
  const scale = (isLog ? scaleLog() : scaleLinear())
    .domain(least === most ? [least * 0.9, most * 1.1] : [least, most])
    .range([PANEL.left + 12, PANEL.right - 12]);
  const x = (value: number): number => scale(value);
  const marks = ticksOf(
    [
      ...new Set(xTicks ?? (isLog ? roundTicks(scale as ScaleLogarithmic<number, number>) : scale.ticks(8))),
    ].sort((a, b) => a - b),
    x,
    formatX,
  );
  const bottom = TOP + panels.length * PANEL.height + (panels.length - 1) * PANEL.gap;
  const none = panels.some(({ points }) => points.some(({ y }) => y === null));
  const height = bottom + 72;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="${escape(title)}">
<style>${STYLE}</style>
<rect class="paper" width="${WIDTH}" height="${height}"/>
<text class="title" x="${PANEL.left}" y="32">${escape(title)}</text>
<text class="dim" x="${PANEL.left}" y="54">${escape(subtitle)}</text>
${panels.map((panel, index) => panelSvg(panel, x, TOP + index * (PANEL.height + PANEL.gap), marks)).join("\n")}
${marks.map((value) => `<text class="middle dim" x="${px(x(value))}" y="${bottom + 18}">${escape(formatX(value))}</text>`).join("")}
<text class="middle" x="${px((PANEL.left + PANEL.right) / 2)}" y="${bottom + 42}">${escape(xLabel)}</text>
${none ? `<text class="end dim" x="${PANEL.right}" y="${bottom + 62}">×: no plan fits</text>` : ""}
</svg>
`;
}
