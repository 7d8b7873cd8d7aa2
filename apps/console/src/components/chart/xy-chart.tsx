import * as Plot from "@observablehq/plot";
import { useEffect } from "react";
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
  /** A level that is not to be exceeded, drawn where it is near. */
  readonly limit?: { readonly value: number; readonly label: string } | undefined;
  /** Between two points the left one holds, as on a front of plans. */
  readonly steps?: boolean;
}

const HEIGHT = 250;
/** Pixels that a label of the x axis needs. */
const LABEL_WIDTH = 46;

/** The values themselves where there is room for all of them, else as many of them as there is room for. */
function ticksOf(values: readonly number[], room: number): number[] {
  const every = Math.max(1, Math.ceil(values.length / Math.max(2, room)));
  return values.filter((_, index) => index % every === 0);
}

/** One curve of predictions; where there is no plan stands a cross. */
export function XyChart({ label, points, xLabel, formatX, formatY, logX = false, limit, steps = false }: XyChartProps) {
  const [box, width] = useWidth();

  useEffect(() => {
    const element = box.current;
    if (!element || width < 100 || points.length === 0) return;
    const known = points.flatMap(({ x, y, title }) => (y === null ? [] : [{ x, y, title }]));
    const missing = points.filter(({ y }) => y === null);
    const highest = Math.max(0, ...known.map(({ y }) => y));
    const limitDrawn = limit !== undefined && limit.value <= 2 * highest;
    const top = (limitDrawn ? Math.max(highest, limit.value) : highest) * 1.08 || 1;
    const xs = [...new Set(points.map(({ x }) => x))].sort((a, b) => a - b);
    const [least, most] = [xs[0] ?? 1, xs.at(-1) ?? 1];
    const isLog = logX && least > 0 && most > least;
    const room = Math.floor((width - 90) / LABEL_WIDTH);
    // A scale of logarithms of its own: Plot's leaves labels out that it thinks crowded, whatever they are.
    const place = (x: number): number => (isLog ? Math.log2(x) : x);
    const back = new Map(xs.map((x) => [place(x), x]));
    const ticks = steps ? undefined : ticksOf(xs, room).map(place);
    const chart = Plot.plot({
      width, height: HEIGHT, marginLeft: 76, marginRight: 18, marginBottom: 42, marginTop: 16,
      style: { background: "transparent", fontSize: "11px" },
      x: { domain: least === most ? [place(least) * 0.9, place(most) * 1.1 + 1e-9] : [place(least), place(most)], inset: 12, label: xLabel, labelArrow: "none", ticks: ticks ?? Math.max(2, room), tickFormat: (at: number) => formatX(back.get(at) ?? at), grid: true },
      y: { domain: [0, top], label: null, ticks: 5, tickFormat: formatY, grid: true },
      marks: [
        Plot.ruleY([0], { stroke: "var(--line)" }),
        ...(limitDrawn ? [Plot.ruleY([limit.value], { stroke: "var(--tone-bad)", strokeDasharray: "5 4" }), Plot.text([limit.label], { x: place(most), y: limit.value, textAnchor: "end", dy: -7, fill: "var(--tone-bad)" })] : []),
        Plot.line(points as XyPoint[], { x: ({ x }: XyPoint) => place(x), y: (point: XyPoint) => point.y ?? Number.NaN, stroke: "var(--series-1)", strokeWidth: 2, ...(steps ? { curve: "step-after" as const } : {}), className: "xy-line" }),
        Plot.dot(known, { x: ({ x }: { x: number }) => place(x), y: "y", fill: "var(--series-1)", r: known.length > 80 ? 1.8 : 3.5, className: "xy-dot" }),
        Plot.dot(missing, { x: ({ x }: XyPoint) => place(x), y: 0, dy: -8, symbol: "times", stroke: "var(--tone-bad)", strokeWidth: 2, r: 4, className: "xy-none" }),
        Plot.tip(known, Plot.pointer({ x: ({ x }: { x: number }) => place(x), y: "y", fill: "var(--surface)", stroke: "var(--line)", title: "title", lineWidth: 34 })),
      ],
    });
    for (const part of chart.querySelectorAll("g[aria-label]")) part.removeAttribute("aria-label");
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", label);
    element.replaceChildren(chart);
    return () => chart.remove();
  }, [points, width, label, xLabel, formatX, formatY, logX, limit, steps]);

  return <figure className="xy-chart"><figcaption>{label}</figcaption><div ref={box} /></figure>;
}

