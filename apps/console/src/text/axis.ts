/** Ticks of logarithmic axes. */

const FEWEST = 4;
/** Mantissas of one decade, the coarsest first. */
const DECADES = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7]] as const;

function within(low: number, high: number, mantissas: readonly number[]): number[] {
  const ticks: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const mantissa of mantissas) ticks.push(mantissa * 10 ** power);
  }
  return ticks.filter((tick) => tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9));
}

/** Round values at equal distances between two values. */
export function linearTicks(low: number, high: number): number[] {
  const rough = (high - low) / (FEWEST + 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([5, 2, 1].find((mantissa) => mantissa * power <= rough) ?? 1) * power;
  const ticks: number[] = [];
  for (let count = Math.ceil(low / step); count * step <= high; count += 1)
    ticks.push(Number((count * step).toPrecision(12)));
  return ticks;
}

/**
 * Ticks between two positive values: whole decades where there are enough, finer ones where not; never more
 * than `most`.
 */
export function logTicks(low: number, high: number, most: number): number[] {
  const chosen =
    DECADES.map((mantissas) => within(low, high, mantissas)).find((ticks) => ticks.length >= FEWEST) ??
    linearTicks(low, high);
  const stride = Math.max(1, Math.ceil(chosen.length / most));
  return chosen.filter((_, index) => index % stride === 0);
}

/** The domain of an axis: all values with room around them, in equal factors. */
export function logDomain(values: readonly number[]): [number, number] {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const room = Math.max(1.15, (high / low) ** 0.08);
  return [low / room, high * room];
}
