import * as Plot from "@observablehq/plot";
import { useEffect } from "react";
import type { CurvePoint } from "../../data/curves.ts";
import { logDomain, logTicks } from "../../text/axis.ts";
import { formatBandwidth, formatBytes, formatSeconds } from "../../text/format.ts";
import { seriesColour, seriesDash } from "./series.ts";
import { useWidth } from "./use-width.ts";

const HEIGHT = 320;

const bytesTick = (bytes: number): string => formatBytes(bytes).replace(/\.0+(?= )/, "");

const TICKS = 8;

function powersOf(base: number, from: number, to: number, most: number): number[] {
  const low = Math.ceil(Math.log(from) / Math.log(base) - 1e-9);
  const high = Math.floor(Math.log(to) / Math.log(base) + 1e-9);
  const stride = Math.max(1, Math.ceil((high - low + 1) / most));
  const ticks: number[] = [];
  for (let power = low; power <= high; power += stride) ticks.push(base ** power);
  return ticks;
}

type Measure = "bandwidth" | "time";

const valuesOf = (points: readonly CurvePoint[], measure: Measure): number[] =>
  measure === "time"
    ? points.flatMap(({ seconds, lowSeconds, highSeconds }) => [
        seconds,
        lowSeconds ?? seconds,
        highSeconds ?? seconds,
      ])
    : points.map(({ bandwidth }) => bandwidth);

/** The spread of each time, from its 10th to its 90th percentile. */
const spreadsOf = (points: readonly CurvePoint[]) =>
  Plot.ruleX(
    points.filter((point) => point.lowSeconds !== undefined && point.highSeconds !== undefined),
    { x: "bytes", y1: "lowSeconds", y2: "highSeconds", stroke: "curve", strokeOpacity: 0.4, strokeWidth: 3 },
  );

const tipOf = (points: readonly CurvePoint[], y: string) =>
  Plot.tip(
    points,
    Plot.pointer({
      x: "bytes",
      y,
      fill: "var(--surface)",
      stroke: "var(--line)",
      title: (point: CurvePoint) =>
        `${point.curve}\n${formatBytes(point.bytes)}: ${formatSeconds(point.seconds)}, ${formatBandwidth(point.bandwidth)}`,
    }),
  );

function curvePlot(points: readonly CurvePoint[], measure: Measure, width: number) {
  const y = measure === "bandwidth" ? "bandwidth" : "seconds";
  const bytes = points.map((point) => point.bytes);
  const domain = logDomain(valuesOf(points, measure));
  const curves = [...new Set(points.map(({ curve }) => curve))];
  return Plot.plot({
    width,
    height: HEIGHT,
    marginLeft: 72,
    marginRight: 16,
    marginBottom: 40,
    style: { background: "transparent", fontSize: "11px" },
    x: {
      type: "log",
      base: 2,
      label: "Bytes of the whole tensor",
      labelArrow: "none",
      ticks: powersOf(4, Math.min(...bytes), Math.max(...bytes), width < 500 ? 5 : 12),
      tickFormat: bytesTick,
      grid: true,
    },
    y: {
      type: "log",
      label: measure === "bandwidth" ? "Bandwidth" : "Time",
      labelArrow: "none",
      domain,
      ticks: logTicks(...domain, TICKS),
      tickFormat: measure === "bandwidth" ? formatBandwidth : formatSeconds,
      grid: true,
    },
    color: { type: "ordinal", domain: curves, range: curves.map((_, index) => seriesColour(index)) },
    marks: [
      ...(measure === "time" ? [spreadsOf(points)] : []),
      Plot.line(points, { x: "bytes", y, stroke: "curve", strokeWidth: 1.75, className: "curve-line" }),
      Plot.dot(points, { x: "bytes", y, fill: "curve", r: 2.5, className: "curve-dot" }),
      tipOf(points, y),
    ],
  });
}

/** Measured curves on logarithmic axes: time or bandwidth over bytes. */
export function CurveChart({
  points,
  measure,
  label,
}: {
  points: readonly CurvePoint[];
  measure: Measure;
  label: string;
}) {
  const [box, width] = useWidth();

  useEffect(() => {
    const element = box.current;
    if (!element || width < 100 || points.length === 0) return;
    const chart = curvePlot(points, measure, width);
    // Its parts carry labels that only elements with a role may have; the whole is one image with a label.
    for (const part of chart.querySelectorAll("g[aria-label]")) part.removeAttribute("aria-label");
    for (const [index, path] of [...chart.querySelectorAll(".curve-line path")].entries()) {
      const dash = seriesDash(index);
      if (dash !== undefined) path.setAttribute("stroke-dasharray", dash);
    }
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", label);
    element.replaceChildren(chart);
    return () => chart.remove();
  }, [points, measure, width, label]);

  return <div ref={box} className="curve-chart" data-measure={measure} />;
}
