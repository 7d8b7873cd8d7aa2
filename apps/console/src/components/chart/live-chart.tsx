import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useMemo, useRef } from "react";
import uPlot from "uplot";
import { formatCounted, formatInteger } from "../../text/format.ts";

interface LiveChartProps {
  readonly title: string;
  readonly steps: readonly number[];
  readonly values: readonly number[];
  readonly format: (value: number) => string;
  /** A line that the values are read against. */
  readonly reference?: { readonly label: string; readonly value: number } | undefined;
  /** Steps where something happened, a restart for example. */
  readonly marks?: readonly number[];
  readonly fromZero?: boolean;
}

const HEIGHT = 220;

const colour = (element: Element, name: string): string =>
  getComputedStyle(element).getPropertyValue(name).trim();

/** A range around all values, with the reference in it. */
function rangeOf(
  minimum: number,
  maximum: number,
  reference: number | undefined,
  fromZero: boolean,
): [number, number] {
  if (!Number.isFinite(minimum) || !Number.isFinite(maximum)) return [0, 1];
  const low = fromZero ? 0 : Math.min(minimum, reference ?? minimum);
  const high = Math.max(maximum, reference ?? maximum);
  const pad = (high - low || Math.abs(high) || 1) * 0.06;
  return [fromZero ? 0 : low - pad, high + pad];
}

/** A series that grows while one looks at it. */
export function LiveChart({
  title,
  steps,
  values,
  format,
  reference,
  marks = [],
  fromZero = false,
}: LiveChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const scheme = useComputedColorScheme("light");
  const referenceValue = reference?.value;
  const referenceLabel = reference?.label;
  const data = useMemo<uPlot.AlignedData>(
    () => [
      steps as number[],
      values as number[],
      ...(referenceValue === undefined ? [] : [steps.map(() => referenceValue)]),
    ],
    [steps, values, referenceValue],
  );
  const latest = useRef({ data, marks });
  latest.current = { data, marks };

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const axis = {
      stroke: colour(element, "--mantine-color-dimmed"),
      grid: { stroke: colour(element, "--line-faint"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    const drawMarks = (chart: uPlot): void => {
      const { ctx, bbox } = chart;
      ctx.save();
      ctx.strokeStyle = colour(element, "--tone-warning");
      ctx.setLineDash([2, 4]);
      for (const step of latest.current.marks) {
        const x = Math.round(chart.valToPos(step, "x", true)) + 0.5;
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
      ctx.restore();
    };
    const chart = new uPlot(
      {
        width: Math.max(200, element.clientWidth),
        height: HEIGHT,
        cursor: { y: false, drag: { x: true, y: false } },
        scales: {
          x: { time: false },
          y: { range: (_, minimum, maximum) => rangeOf(minimum, maximum, referenceValue, fromZero) },
        },
        axes: [
          {
            ...axis,
            size: 28,
            incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6],
          },
          {
            ...axis,
            size: 56,
            values: (_, ticks) =>
              ticks.map((tick) =>
                new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 }).format(
                  tick,
                ),
              ),
          },
        ],
        series: [
          { label: "Step", value: (_, value) => (value === null ? "–" : formatInteger(value)) },
          {
            label: title,
            stroke: colour(element, "--series-1"),
            width: 1.75,
            points: { show: (self) => (self.data[0]?.length ?? 0) < 40, size: 5 },
            value: (_, value) => (value === null ? "–" : format(value)),
          },
          ...(referenceLabel === undefined
            ? []
            : [
                {
                  label: referenceLabel,
                  stroke: colour(element, "--series-2"),
                  width: 1.5,
                  dash: [6, 5],
                  points: { show: false },
                  value: (_: uPlot, value: number | null) => (value === null ? "–" : format(value)),
                },
              ]),
        ],
        hooks: {
          draw: [drawMarks],
          // Without a pointer the legend tells the last values.
          setLegend: [
            (self) => {
              if (self.legend.idx == null && (self.data[0]?.length ?? 0) > 0)
                self.setLegend({ idx: (self.data[0]?.length ?? 0) - 1 }, false);
            },
          ],
        },
      },
      latest.current.data,
      element,
    );
    plot.current = chart;
    const observer = new ResizeObserver(() => {
      if (element.clientWidth > 0 && element.clientWidth !== chart.width)
        chart.setSize({ width: element.clientWidth, height: HEIGHT });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      chart.destroy();
      plot.current = null;
    };
  }, [scheme, title, format, referenceLabel, referenceValue, fromZero]);

  useEffect(() => {
    const chart = plot.current;
    if (!chart) return;
    chart.setData(data);
    if ((chart.cursor.left ?? -1) < 0 && data[0].length > 0)
      chart.setLegend({ idx: data[0].length - 1 }, false);
  }, [data]);

  const last = values.at(-1);
  const words = `${title} over ${formatCounted(steps.length, "step")}${last === undefined ? "" : `, last ${format(last)}`}${reference ? `; ${reference.label} ${format(reference.value)}` : ""}`;
  return <div ref={box} className="live-chart" role="img" aria-label={words} />;
}
