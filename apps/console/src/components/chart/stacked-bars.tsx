import type { SeriesLook } from "@internevo/domain";
import type { ReactNode } from "react";
import { lookColour, lookPattern } from "./series.ts";

export interface Segment {
  readonly name: string;
  readonly value: number;
}

export interface Bar {
  readonly key: string;
  readonly label: ReactNode;
  /** For readers of the table and of the bar's description. */
  readonly labelText: string;
  readonly segments: readonly Segment[];
  readonly emphasised?: boolean;
  /** A second value on the same scale, for example the measured peak. */
  readonly mark?: number | undefined;
}

interface StackedBarsProps {
  readonly title: string;
  readonly bars: readonly Bar[];
  /** Names of the segments in their order. */
  readonly names: readonly string[];
  /** A name has the same look in every chart. */
  readonly lookOf: (name: string) => SeriesLook;
  readonly wordOf: (name: string) => string;
  readonly format: (value: number) => string;
  readonly limit?: { readonly value: number; readonly label: string } | undefined;
  readonly markLabel?: string;
  /** What a bar stands for. Default: Plan. */
  readonly rowName?: string;
  /** What all labels leave out. */
  readonly note?: ReactNode;
}

const sum = (bar: Bar): number => bar.segments.reduce((total, { value }) => total + value, 0);

type Names = Pick<StackedBarsProps, "names" | "lookOf" | "wordOf">;

/** The colours and words of segments, of the limit and of marks. */
function Legend({
  names,
  lookOf,
  wordOf,
  format,
  limit,
  limitDrawn,
  markLabel,
}: Names & Pick<StackedBarsProps, "format" | "limit" | "markLabel"> & { limitDrawn: boolean }) {
  return (
    <figcaption className="legend">
      {names.map((name) => (
        <span key={name} className="legend-item">
          <span
            className={`swatch ${lookPattern(lookOf(name))}`}
            style={{ backgroundColor: lookColour(lookOf(name)) }}
            aria-hidden="true"
          />
          {wordOf(name)}
        </span>
      ))}
      {limit && (
        <span className="legend-item">
          <span className="swatch swatch-limit" aria-hidden="true" />
          {limit.label} {format(limit.value)}
          {!limitDrawn && ", beyond this scale"}
        </span>
      )}
      {markLabel !== undefined && (
        <span className="legend-item">
          <span className="swatch swatch-mark" aria-hidden="true" />
          {markLabel}
        </span>
      )}
    </figcaption>
  );
}

function BarRow({
  bar,
  full,
  limit,
  lookOf,
  wordOf,
  format,
  markLabel,
}: Omit<Names, "names"> &
  Pick<StackedBarsProps, "format" | "limit" | "markLabel"> & { bar: Bar; full: number }) {
  const share = (value: number): string => `${((100 * value) / full).toFixed(3)}%`;
  return (
    <div className={`bar-row ${bar.emphasised ? "bar-emphasised" : ""}`}>
      <div className="bar-label">{bar.label}</div>
      <div className="bar-track" role="img" aria-label={`${bar.labelText}: ${format(sum(bar))}`}>
        {bar.segments
          .filter(({ value }) => value > 0)
          .map(({ name, value }) => (
            <span
              key={name}
              className={`bar-segment ${lookPattern(lookOf(name))}`}
              data-segment={name}
              style={{ width: share(value), backgroundColor: lookColour(lookOf(name)) }}
              title={`${wordOf(name)}: ${format(value)}`}
            />
          ))}
        {limit && (
          <span
            className="bar-limit"
            style={{ left: share(limit.value) }}
            title={`${limit.label} ${format(limit.value)}`}
          />
        )}
        {bar.mark !== undefined && (
          <span
            className="bar-mark"
            style={{ left: share(bar.mark) }}
            title={`${markLabel ?? "measured"} ${format(bar.mark)}`}
          />
        )}
      </div>
      <div className="bar-total figures">{format(sum(bar))}</div>
    </div>
  );
}

function BarFigures({
  title,
  bars,
  names,
  wordOf,
  format,
  rowName,
}: Pick<StackedBarsProps, "title" | "bars" | "names" | "wordOf" | "format"> & { rowName: string }) {
  return (
    <details className="as-table">
      <summary>Show the figures</summary>
      <div className="scroll-box" role="region" aria-label={`${title}, figures`} tabIndex={0}>
        <table className="data-table">
          <thead>
            <tr>
              <th scope="col">{rowName}</th>
              {names.map((name) => (
                <th key={name} scope="col" className="numeric">
                  {wordOf(name)}
                </th>
              ))}
              <th scope="col" className="numeric">
                Sum
              </th>
            </tr>
          </thead>
          <tbody>
            {bars.map((bar) => (
              <tr key={bar.key}>
                <th scope="row">{bar.labelText}</th>
                {names.map((name) => (
                  <td key={name} className="numeric">
                    {format(bar.segments.find((segment) => segment.name === name)?.value ?? 0)}
                  </td>
                ))}
                <td className="numeric">{format(sum(bar))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

/**
 * One stacked bar a row on a common scale, with a legend, an optional limit and the same figures as a table.
 */
export function StackedBars(props: StackedBarsProps) {
  const { title, bars, names, lookOf, wordOf, format, limit, markLabel, rowName = "Plan", note } = props;
  const scale = Math.max(...bars.map((bar) => Math.max(sum(bar), bar.mark ?? 0)), 1e-12);
  // A limit far above every bar would squeeze them to nothing: then it is said, not drawn.
  const limitDrawn = limit !== undefined && limit.value <= scale * 6;
  const full = limitDrawn ? Math.max(scale, limit.value) * 1.02 : scale * 1.02;
  const anyMark = bars.some(({ mark }) => mark !== undefined);
  const look = { lookOf, wordOf, format };
  return (
    <figure className="stacked-bars" aria-label={title}>
      <Legend
        {...look}
        names={names}
        limit={limit}
        limitDrawn={limitDrawn}
        {...(anyMark && markLabel !== undefined ? { markLabel } : {})}
      />
      {note}
      <div className="bars">
        {bars.map((bar) => (
          <BarRow
            key={bar.key}
            bar={bar}
            full={full}
            limit={limitDrawn ? limit : undefined}
            {...look}
            {...(markLabel === undefined ? {} : { markLabel })}
          />
        ))}
      </div>
      <BarFigures title={title} bars={bars} names={names} wordOf={wordOf} format={format} rowName={rowName} />
    </figure>
  );
}
