import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useMemo, useRef } from "react";
import uPlot from "uplot";
import { formatCounted, formatInteger } from "../../text/format.ts";

interface LiveChartProps {
  readonly title: string;
  readonly steps: readonly number[];
  /** Null at a step that has none. */
  readonly values: readonly (number | null)[];
  /** Another curve over the same steps, at some of which it has values. */
  readonly second?: { readonly label: string; readonly values: readonly (number | null)[] } | undefined;
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

/** What a chart is made with; its values come later. */
interface Look {
  readonly title: string;
  readonly format: (value: number) => string;
  readonly secondLabel: string | undefined;
  readonly referenceLabel: string | undefined;
  readonly referenceValue: number | undefined;
  readonly fromZero: boolean;
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });

function axesOf(element: Element): uPlot.Axis[] {
  const axis = {
    stroke: colour(element, "--mantine-color-dimmed"),
    grid: { stroke: colour(element, "--line-faint"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  return [
    {
      ...axis,
      size: 28,
      incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6],
    },
    { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => compact.format(tick)) },
  ];
}

/** The value at a step, or the one before it where that step has none. */
function newest(values: ArrayLike<number | null | undefined>, at: number | null): number | null {
  for (let index = at ?? -1; index >= 0; index -= 1) {
    const value = values[index];
    if (value != null) return value;
  }
  return null;
}

function seriesOf(element: Element, { title, format, secondLabel, referenceLabel }: Look): uPlot.Series[] {
  const value = (_: uPlot, at: number | null): string => (at === null ? "–" : format(at));
  return [
    { label: "Step", value: (_, at: number | null) => (at === null ? "–" : formatInteger(at)) },
    {
      label: title,
      stroke: colour(element, "--series-1"),
      width: 1.75,
      points: { show: (self) => (self.data[0]?.length ?? 0) < 40, size: 5 },
      value,
    },
    ...(secondLabel === undefined
      ? []
      : [
          {
            label: secondLabel,
            stroke: colour(element, "--series-3"),
            width: 1.75,
            spanGaps: true,
            points: { show: true, size: 6 },
            value: (self: uPlot, _: number | null, series: number, at: number | null) =>
              value(self, newest(self.data[series] ?? [], at)),
          },
        ]),
    ...(referenceLabel === undefined
      ? []
      : [
          {
            label: referenceLabel,
            stroke: colour(element, "--series-2"),
            width: 1.5,
            dash: [6, 5],
            points: { show: false },
            value,
          },
        ]),
  ];
}

/** A dashed line at each step where something happened. */
function drawMarks(chart: uPlot, element: Element, steps: readonly number[]): void {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.strokeStyle = colour(element, "--tone-warning");
  ctx.setLineDash([2, 4]);
  for (const step of steps) {
    const x = Math.round(chart.valToPos(step, "x", true)) + 0.5;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** Without a pointer the legend tells the last values. */
function tellLast(chart: uPlot): void {
  const count = chart.data[0]?.length ?? 0;
  if (chart.legend.idx == null && count > 0) chart.setLegend({ idx: count - 1 }, false);
}

const plotOptions = (element: Element, look: Look, marks: () => readonly number[]): uPlot.Options => ({
  width: Math.max(200, element.clientWidth),
  height: HEIGHT,
  cursor: { y: false, drag: { x: true, y: false } },
  scales: {
    x: { time: false },
    y: { range: (_, minimum, maximum) => rangeOf(minimum, maximum, look.referenceValue, look.fromZero) },
  },
  axes: axesOf(element),
  series: seriesOf(element, look),
  hooks: { draw: [(chart) => drawMarks(chart, element, marks())], setLegend: [tellLast] },
});

/** A series that grows while one looks at it. */
export function LiveChart({
  title,
  steps,
  values,
  second,
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
  const secondLabel = second?.label;
  const secondValues = second?.values;
  const data = useMemo<uPlot.AlignedData>(
    () => [
      steps as number[],
      values as (number | null)[],
      ...(secondValues === undefined ? [] : [secondValues as (number | null)[]]),
      ...(referenceValue === undefined ? [] : [steps.map(() => referenceValue)]),
    ],
    [steps, values, secondValues, referenceValue],
  );
  const latest = useRef({ data, marks });
  latest.current = { data, marks };

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = { title, format, secondLabel, referenceLabel, referenceValue, fromZero };
    const options = plotOptions(element, look, () => latest.current.marks);
    const chart = new uPlot(options, latest.current.data, element);
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
  }, [scheme, title, format, secondLabel, referenceLabel, referenceValue, fromZero]);

  useEffect(() => {
    const chart = plot.current;
    if (!chart) return;
    chart.setData(data);
    if ((chart.cursor.left ?? -1) < 0 && data[0].length > 0)
      chart.setLegend({ idx: data[0].length - 1 }, false);
  }, [data]);

  const last = newest(values, values.length - 1);
  const lastOfSecond = second ? newest(second.values, second.values.length - 1) : null;
  const count = values.reduce<number>((sum, value) => (value === null ? sum : sum + 1), 0);
  const words = `${title} over ${formatCounted(count, "step")}${last === null ? "" : `, last ${format(last)}`}${second && lastOfSecond !== null ? `; ${second.label}, last ${format(lastOfSecond)}` : ""}${reference ? `; ${reference.label} ${format(reference.value)}` : ""}`;
  return <div ref={box} className="live-chart" role="img" aria-label={words} />;
}
