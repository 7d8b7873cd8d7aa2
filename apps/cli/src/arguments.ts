import { InvalidArgumentError } from "commander";

/** An option's value as an integer within bounds. */
export const integerArgument =
  (minimum: number, maximum: number) =>
  (text: string): number => {
    const value = Number(text);
    if (!/^-?\d+$/.test(text.trim()) || !Number.isSafeInteger(value) || value < minimum || value > maximum) throw new InvalidArgumentError(`give an integer from ${minimum} to ${maximum}.`);
    return value;
  };

export const numberArgument =
  (minimum: number, maximum: number) =>
  (text: string): number => {
    const value = Number(text);
    if (text.trim() === "" || !Number.isFinite(value) || value < minimum || value > maximum) throw new InvalidArgumentError(`give a number from ${minimum} to ${maximum}.`);
    return value;
  };
