import * as Plot from "@observablehq/plot";
import { useEffect } from "react";
import { linearTicks, logDomain, logTicks } from "../../text/axis.ts";
import { useWidth } from "./use-width.ts";

export interface XyPoint {
  readonly x: number;
  /** Null: there is none at this x. */
  readonly y: number | null;
  /** Shown when somebody points at it. */
  readonly title: string;
}

interface XyChartProps {
  readonly label: string;
  readonly points: readonly XyPoint[];
  readonly xLabel: string;
  readonly formatX: (value: number) => string;
  readonly formatY: (value: number) => string;
  readonly logX?: boolean;
  /**
   * Without it: a curve whose values span a decade or more has a logarithmic axis, since a linear one
   * squeezes the small ones.
   */
  readonly logY?: boolean;
  /** A level that is not to be exceeded, drawn where it is near. */
  readonly limit?: { readonly value: number; readonly label: string } | undefined;
  /** Between two points the left one holds, as on a front of plans. */
  readonly steps?: boolean;
}

const HEIGHT = 250;
const MARGIN = { left: 76, right: 18 } as const;
/** Pixels of a character of a label, rather too wide than too narrow, and between two labels. */
const CHARACTER_WIDTH = 6.6;
const LABEL_GAP = 12;
const DECADE = 10;
const Y_TICKS = 6;

/** Values whose labels stay apart: the first and the last are kept rather than those between. */
function ticksApart(
  values: readonly number[],
  place: (value: number) => number,
  format: (value: number) => string,
): number[] {
  const half = (value: number): number => (format(value).length * CHARACTER_WIDTH + LABEL_GAP) / 2;
  const apart = (left: number, right: number): boolean =>
    place(left) + half(left) <= place(right) - half(right);
  const last = values.at(-1);
  if (last === undefined) return [];
  const kept: number[] = [];
  for (const value of values.slice(0, -1)) {
    const before = kept.at(-1);
    if ((before === undefined || apart(before, value)) && apart(value, last)) kept.push(value);
  }
  return [...kept, last];
}

/** One curve of predictions; where there is no plan stands a cross. */
export function XyChart({
  label,
  points,
  xLabel,
  formatX,
  formatY,
  logX = false,
  logY,
  limit,
  steps = false,
}: XyChartProps) {
  const [box, width] = useWidth();

  useEffect(() => {
    const element = box.current;
    if (!element || width < 100 || points.length === 0) return;
    const known = points.flatMap(({ x, y, title }) => (y === null ? [] : [{ x, y, title }]));
    const missing = points.filter(({ y }) => y === null);
    const highest = Math.max(0, ...known.map(({ y }) => y));
    const limitDrawn = limit !== undefined && limit.value <= 2 * highest;
    const top = (limitDrawn ? Math.max(highest, limit.value) : highest) * 1.08 || 1;
    const lowest = Math.min(...known.map(({ y }) => y));
    const isLogY = (logY ?? highest >= DECADE * lowest) && lowest > 0 && highest > lowest;
    const yDomain = isLogY
      ? logDomain([lowest, limitDrawn ? Math.max(highest, limit.value) : highest])
      : ([0, top] as [number, number]);
    const floor = yDomain[0];
    const xs = [...new Set(points.map(({ x }) => x))].sort((a, b) => a - b);
    const [least, most] = [xs[0] ?? 1, xs.at(-1) ?? 1];
    const isLog = logX && least > 0 && most > least;
    // A scale of logarithms of its own: Plot's leaves labels out that it thinks crowded, whatever they are.
    const place = (x: number): number => (isLog ? Math.log2(x) : x);
    const room = width - MARGIN.left - MARGIN.right;
    const pixels = (x: number): number =>
      (room * (place(x) - place(least))) / (place(most) - place(least) || 1);
    const values =
      steps && least < most ? (isLog ? logTicks(least, most, room / 40) : linearTicks(least, most)) : xs;
    const shownTicks = ticksApart(values, pixels, formatX);
    const back = new Map(shownTicks.map((x) => [place(x), x]));
    const chart = Plot.plot({
      width,
      height: HEIGHT,
      marginLeft: MARGIN.left,
      marginRight: MARGIN.right,
      marginBottom: 42,
      marginTop: 16,
      style: { background: "transparent", fontSize: "11px" },
      x: {
        domain: least === most ? [place(least) * 0.9, place(most) * 1.1 + 1e-9] : [place(least), place(most)],
        inset: 12,
        label: xLabel,
        labelArrow: "none",
        ticks: shownTicks.map(place),
        tickFormat: (at: number) => formatX(back.get(at) ?? at),
        grid: true,
      },
      y: {
        type: isLogY ? "log" : "linear",
        domain: [...yDomain],
        label: null,
        ticks: isLogY ? logTicks(...yDomain, Y_TICKS) : 5,
        tickFormat: formatY,
        grid: true,
      },
      marks: [
        Plot.ruleY([floor], { stroke: "var(--line)" }),
        ...(limitDrawn
          ? [
              Plot.ruleY([limit.value], { stroke: "var(--tone-bad)", strokeDasharray: "5 4" }),
              Plot.text([limit.label], {
                x: place(most),
                y: limit.value,
                textAnchor: "end",
                dy: -7,
                fill: "var(--tone-bad)",
              }),
            ]
          : []),
        Plot.line(points as XyPoint[], {
          x: ({ x }: XyPoint) => place(x),
          y: (point: XyPoint) => point.y ?? Number.NaN,
          stroke: "var(--series-1)",
          strokeWidth: 2,
          ...(steps ? { curve: "step-after" as const } : {}),
          className: "xy-line",
        }),
        Plot.dot(known, {
          x: ({ x }: { x: number }) => place(x),
          y: "y",
          fill: "var(--series-1)",
          r: known.length > 80 ? 1.8 : 3.5,
          className: "xy-dot",
        }),
        Plot.dot(missing, {
          x: ({ x }: XyPoint) => place(x),
          y: floor,
          dy: -8,
          symbol: "times",
          stroke: "var(--tone-bad)",
          strokeWidth: 2,
          r: 4,
          className: "xy-none",
        }),
        Plot.tip(
          known,
          Plot.pointer({
            x: ({ x }: { x: number }) => place(x),
            y: "y",
            fill: "var(--surface)",
            stroke: "var(--line)",
            title: "title",
            lineWidth: 34,
          }),
        ),
      ],
    });
    for (const part of chart.querySelectorAll("g[aria-label]")) part.removeAttribute("aria-label");
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", label);
    element.replaceChildren(chart);
    return () => chart.remove();
  }, [points, width, label, xLabel, formatX, formatY, logX, logY, limit, steps]);

  return (
    <figure className="xy-chart">
      <figcaption>{label}</figcaption>
      <div ref={box} />
    </figure>
  );
}
