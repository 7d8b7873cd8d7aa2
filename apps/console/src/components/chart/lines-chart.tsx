import * as Plot from "@observablehq/plot";
import { useEffect, useMemo } from "react";
import { seriesColour, seriesDash, seriesPattern } from "./series.ts";
import { useWidth } from "./use-width.ts";

export interface Line {
  readonly name: string;
  readonly points: readonly { readonly x: number; readonly y: number }[];
}

interface LinesChartProps {
  readonly label: string;
  readonly xLabel: string;
  readonly lines: readonly Line[];
  readonly formatX: (value: number) => string;
  readonly formatY: (value: number) => string;
  /** Whether each point is marked, where they are few. */
  readonly dots?: boolean;
}

const HEIGHT = 300;

interface Placed {
  readonly x: number;
  readonly y: number;
  readonly line: string;
}

function linesPlot({ xLabel, lines, formatX, formatY, dots = false }: LinesChartProps, width: number) {
  // Lines of one name are two lines: each has its place.
  const keys = lines.map((_, index) => String(index));
  const points = lines.flatMap(({ points: own }, index) =>
    own.map(({ x, y }): Placed => ({ x, y, line: String(index) })),
  );
  const nameOf = ({ line }: Placed): string => lines[Number(line)]?.name ?? "";
  return Plot.plot({
    width,
    height: HEIGHT,
    marginLeft: 56,
    marginRight: 16,
    marginBottom: 40,
    style: { background: "transparent", fontSize: "11px" },
    x: { label: xLabel, labelArrow: "none", ticks: width < 500 ? 4 : 8, tickFormat: formatX, grid: true },
    y: { label: null, nice: true, ticks: 6, grid: true },
    color: { type: "ordinal", domain: keys, range: keys.map((_, index) => seriesColour(index)) },
    marks: [
      Plot.line(points, {
        x: "x",
        y: "y",
        z: "line",
        stroke: "line",
        strokeWidth: 1.75,
        className: "curve-line",
      }),
      ...(dots ? [Plot.dot(points, { x: "x", y: "y", fill: "line", r: 2.5, className: "curve-dot" })] : []),
      Plot.tip(
        points,
        Plot.pointer({
          x: "x",
          y: "y",
          fill: "var(--surface)",
          stroke: "var(--line)",
          title: (point: Placed) => `${nameOf(point)}\n${formatX(point.x)}: ${formatY(point.y)}`,
        }),
      ),
    ],
  });
}

/** Several lines over one another, with a legend. */
export function LinesChart(props: LinesChartProps) {
  const { label, xLabel, lines, formatX, formatY, dots } = props;
  const [box, width] = useWidth();
  const drawn = useMemo(
    (): LinesChartProps => ({
      label,
      xLabel,
      lines,
      formatX,
      formatY,
      ...(dots === undefined ? {} : { dots }),
    }),
    [label, xLabel, lines, formatX, formatY, dots],
  );

  useEffect(() => {
    const element = box.current;
    if (!element || width < 100) return;
    const chart = linesPlot(drawn, width);
    // Its parts carry labels that only elements with a role may have; the whole is one image with a label.
    for (const part of chart.querySelectorAll("g[aria-label]")) part.removeAttribute("aria-label");
    const withPoints = drawn.lines.flatMap(({ points }, index) => (points.length > 0 ? [index] : []));
    for (const [index, path] of [...chart.querySelectorAll(".curve-line path")].entries()) {
      const dash = seriesDash(withPoints[index] ?? index);
      if (dash !== undefined) path.setAttribute("stroke-dasharray", dash);
    }
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", drawn.label);
    element.replaceChildren(chart);
    return () => chart.remove();
  }, [drawn, width]);

  return (
    <>
      <div className="legend">
        {lines.map(({ name, points }, index) =>
          points.length === 0 ? null : (
            <span key={index} className="legend-item">
              <span
                className={`swatch ${seriesPattern(index)}`}
                style={{ backgroundColor: seriesColour(index) }}
                aria-hidden="true"
              />
              {name}
            </span>
          ),
        )}
      </div>
      <div ref={box} className="curve-chart" />
    </>
  );
}
