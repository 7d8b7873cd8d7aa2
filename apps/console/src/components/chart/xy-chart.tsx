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
  readonly logX?: boolean | undefined;
  /**
   * Without it: a curve whose values span a decade or more has a logarithmic axis, since a linear one
   * squeezes the small ones.
   */
  readonly logY?: boolean | undefined;
  /** A level that is not to be exceeded, drawn where it is near. */
  readonly limit?: { readonly value: number; readonly label: string } | undefined;
  /** Between two points the left one holds, as on a front of plans. */
  readonly steps?: boolean | undefined;
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

/** The vertical scale: from zero, or of logarithms where values spread over decades. */
function yScale({ points, logY, limit }: XyChartProps) {
  const values = points.flatMap(({ y }) => (y === null ? [] : [y]));
  const highest = Math.max(0, ...values);
  const limitDrawn = limit !== undefined && limit.value <= 2 * highest;
  const top = limitDrawn ? Math.max(highest, limit.value) : highest;
  const lowest = Math.min(...values);
  const isLog = (logY ?? highest >= DECADE * lowest) && lowest > 0 && highest > lowest;
  const domain: readonly [number, number] = isLog ? logDomain([lowest, top]) : [0, top * 1.08 || 1];
  return { isLog, domain, limit: limitDrawn ? limit : undefined };
}

/** The horizontal scale, and the labels that have room on it. */
function xScale({ points, logX = false, steps = false, formatX }: XyChartProps, width: number) {
  const xs = [...new Set(points.map(({ x }) => x))].sort((a, b) => a - b);
  const [least, most] = [xs[0] ?? 1, xs.at(-1) ?? 1];
  const isLog = logX && least > 0 && most > least;
  // A scale of logarithms of its own: Plot's leaves labels out that it thinks crowded, whatever they are.
  const place = (x: number): number => (isLog ? Math.log2(x) : x);
  const room = width - MARGIN.left - MARGIN.right;
  const pixels = (x: number): number =>
    (room * (place(x) - place(least))) / (place(most) - place(least) || 1);
  const onScale = (): number[] => (isLog ? logTicks(least, most, room / 40) : linearTicks(least, most));
  return { place, least, most, ticks: ticksApart(steps && least < most ? onScale() : xs, pixels, formatX) };
}

type Place = (x: number) => number;

const limitMarks = (limit: NonNullable<XyChartProps["limit"]>, x: number) => [
  Plot.ruleY([limit.value], { stroke: "var(--tone-bad)", strokeDasharray: "5 4" }),
  Plot.text([limit.label], { x, y: limit.value, textAnchor: "end", dy: -7, fill: "var(--tone-bad)" }),
];

function pointMarks({ points, steps = false }: XyChartProps, place: Place, floor: number) {
  const known = points.flatMap(({ x, y, title }) => (y === null ? [] : [{ x, y, title }]));
  const missing = points.filter(({ y }) => y === null);
  const x = (point: { readonly x: number }): number => place(point.x);
  return [
    Plot.line(points as XyPoint[], {
      x,
      y: (point: XyPoint) => point.y ?? Number.NaN,
      stroke: "var(--series-1)",
      strokeWidth: 2,
      ...(steps ? { curve: "step-after" as const } : {}),
      className: "xy-line",
    }),
    Plot.dot(known, {
      x,
      y: "y",
      fill: "var(--series-1)",
      r: known.length > 80 ? 1.8 : 3.5,
      className: "xy-dot",
    }),
    Plot.dot(missing, {
      x,
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
        x,
        y: "y",
        fill: "var(--surface)",
        stroke: "var(--line)",
        title: "title",
        lineWidth: 34,
      }),
    ),
  ];
}

function xyPlot(props: XyChartProps, width: number) {
  const { xLabel, formatX, formatY } = props;
  const y = yScale(props);
  const { place, least, most, ticks } = xScale(props, width);
  const floor = y.domain[0];
  const back = new Map(ticks.map((x) => [place(x), x]));
  return Plot.plot({
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
      ticks: ticks.map(place),
      tickFormat: (at: number) => formatX(back.get(at) ?? at),
      grid: true,
    },
    y: {
      type: y.isLog ? "log" : "linear",
      domain: [...y.domain],
      label: null,
      ticks: y.isLog ? logTicks(...y.domain, Y_TICKS) : 5,
      tickFormat: formatY,
      grid: true,
    },
    marks: [
      Plot.ruleY([floor], { stroke: "var(--line)" }),
      ...(y.limit ? limitMarks(y.limit, place(most)) : []),
      ...pointMarks(props, place, floor),
    ],
  });
}

/** One curve of predictions; where there is no plan stands a cross. */
export function XyChart(props: XyChartProps) {
  const { label, points, xLabel, formatX, formatY, logX, logY, limit, steps } = props;
  const [box, width] = useWidth();

  useEffect(() => {
    const element = box.current;
    if (!element || width < 100 || points.length === 0) return;
    const chart = xyPlot({ label, points, xLabel, formatX, formatY, logX, logY, limit, steps }, width);
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
