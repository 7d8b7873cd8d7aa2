/** @throws RangeError by the name of what is no count. */
export const positive = (name: string, value: number): number => {
  if (!Number.isInteger(value) || value < 1)
    throw new RangeError(`${name} is ${value}: give an integer of 1 or more`);
  return value;
};
