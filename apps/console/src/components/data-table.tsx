import type { ReactNode, TdHTMLAttributes, ThHTMLAttributes } from "react";

/**
 * Table parts that keep their roles where styles lay a row out as a card, which would otherwise take them
 * away. `label` is what a cell is called in its card.
 */
export function Table({
  label,
  narrow,
  className = "",
  children,
}: {
  label: string;
  narrow: "cards" | "scroll";
  className?: string;
  children: ReactNode;
}) {
  const table = (
    <table
      role="table"
      aria-label={label}
      className={`data-table ${narrow === "cards" ? "cards-when-narrow" : ""} ${className}`}
    >
      {children}
    </table>
  );
  return (
    <div className="scroll-box" role="region" aria-label={`${label}, scrollable`} tabIndex={0}>
      {table}
    </div>
  );
}

export const Head = ({ children }: { children: ReactNode }) => <thead role="rowgroup">{children}</thead>;
export const Body = ({ children }: { children: ReactNode }) => <tbody role="rowgroup">{children}</tbody>;

export function Row({
  className,
  name,
  children,
}: {
  className?: string | undefined;
  name?: string | undefined;
  children: ReactNode;
}) {
  return (
    <tr role="row" className={className} data-row={name}>
      {children}
    </tr>
  );
}

interface ColumnProps extends ThHTMLAttributes<HTMLTableCellElement> {
  readonly numeric?: boolean;
}
export function Column({ numeric = false, className = "", ...rest }: ColumnProps) {
  return (
    <th role="columnheader" scope="col" className={`${numeric ? "numeric" : ""} ${className}`} {...rest} />
  );
}

interface CellProps extends TdHTMLAttributes<HTMLTableCellElement> {
  readonly label?: string;
  readonly numeric?: boolean;
}
export function Cell({ label, numeric = false, className = "", children, ...rest }: CellProps) {
  return (
    <td role="cell" data-label={label} className={`${numeric ? "numeric" : ""} ${className}`} {...rest}>
      {children ?? <span className="nothing">–</span>}
    </td>
  );
}

export const RowTitle = ({ children }: { children: ReactNode }) => (
  <th role="rowheader" scope="row" className="card-title">
    {children}
  </th>
);
