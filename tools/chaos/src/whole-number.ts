/** An option's whole number. @throws Error naming the option. */
export function wholeNumber(name: string, text: string, minimum: number): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < minimum)
    throw new Error(`${name} ${text}: is no whole number from ${minimum}`);
  return value;
}
