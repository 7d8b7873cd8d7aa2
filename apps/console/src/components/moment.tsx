import { useSyncExternalStore } from "react";
import { formatMoment, formatRelative, formatSpan } from "../text/format.ts";

let now = Date.now();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = Date.now();
    for (const each of listeners) each();
  }, 1000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The time of day, to the second: one clock for the whole page. */
export const useNow = (): number => useSyncExternalStore(subscribe, () => now);

/** A moment relative to now; `both` says the absolute one too, which is otherwise in the title. */
export function Moment({ at, both = false }: { at: string; both?: boolean }) {
  const moment = Date.parse(at);
  const current = useNow();
  const relative = formatRelative(moment, Math.max(current, Date.now()));
  const absolute = formatMoment(moment);
  return (
    <time dateTime={at} title={both ? undefined : absolute} className="moment">
      {relative}
      {both && (
        <>
          <span className="moment-dot"> · </span>
          <span className="moment-absolute">{absolute}</span>
        </>
      )}
    </time>
  );
}

/** Without `to` it goes on. */
export interface Period {
  readonly from: string;
  readonly to: string | null;
}

/** The length of some periods together, counting up while one of them goes on. */
export function Spans({ of }: { of: readonly Period[] }) {
  const current = useNow();
  const lengthOf = ({ from, to }: Period): number =>
    (to === null ? Math.max(current, Date.parse(from)) : Date.parse(to)) - Date.parse(from);
  return <>{formatSpan(of.reduce((sum, period) => sum + lengthOf(period), 0))}</>;
}

/** The time between two moments, counting up while there is no end. */
export const Span = (period: Period) => <Spans of={[period]} />;
