import type { Plan } from "@internevo/domain";
import {
  DIMENSIONS,
  dimensionsOf,
  dimensionValue,
  OVERLAP_WORDS,
  overlapWords,
  type Dimension,
} from "../../text/words.ts";

/** A plan in the paper's symbols; factors of 1, which do nothing, step back. */
export function PlanText({ plan }: { plan: Plan }) {
  const overlap = overlapWords(plan);
  return (
    <span className="plan-text">
      {dimensionsOf([plan]).map(({ key, symbol, name, meaning }) => {
        const value = dimensionValue(plan, key);
        const idle = key === "recompute" || key === "recomputeLayers" ? value === "0" : value === "1";
        const separator = Number.isNaN(Number(value)) ? "-" : "";
        return (
          <span
            key={key}
            className={idle ? "plan-part plan-part-idle" : "plan-part"}
            title={`${name}: ${meaning}`}
          >
            <span className="plan-symbol">
              {symbol}
              {separator}
            </span>
            {value}
          </span>
        );
      })}
      {overlap !== OVERLAP_WORDS.none && (
        <span className="plan-part" title="What the forward and the backward pass hide of the communication">
          <span className="plan-symbol">overlap</span> {overlap}
        </span>
      )}
    </span>
  );
}

/** What the symbols mean. */
export function PlanLegend({ dimensions = DIMENSIONS }: { dimensions?: readonly Dimension[] }) {
  return (
    <details className="as-table">
      <summary>What the symbols mean</summary>
      <dl className="plan-legend">
        {dimensions.map(({ symbol, name, meaning }) => (
          <div key={symbol}>
            <dt>
              <code>{symbol}</code> {name}
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}
