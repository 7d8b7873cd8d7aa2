/** At most `most` (two or more) of ascending values, with the first and the last, evenly spread over their order. */
export function thin(values: readonly number[], most: number): number[] {
  if (values.length <= most) return [...values];
  const picked = new Set<number>();
  for (let i = 0; i < most; i += 1)
    picked.add(values[Math.round((i * (values.length - 1)) / (most - 1))] as number);
  return [...picked];
}
