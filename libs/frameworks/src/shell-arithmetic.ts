/** Longer arithmetic is none that people write. */
const MOST_CHARACTERS = 1000;

/**
 * Integers with + - * / % and brackets, as $(( )) has them.
 * @param valueOf the text that a variable stands for; undefined when it is not known.
 * @returns undefined for what is not understood, and what a shell's 64 bits might not hold.
 */
export function shellArithmetic(
  text: string,
  valueOf: (name: string) => string | undefined,
): number | undefined {
  if (text.length > MOST_CHARACTERS) return undefined;
  let isKnown = true;
  const known = text.replace(
    /\$\{([A-Za-z_]\w*)\}|(\$?)([A-Za-z_]\w*)/g,
    (_whole, braced: string | undefined, dollar: string, plain: string) => {
      const value = valueOf(braced ?? plain);
      // A name alone is the value of what it holds, $NAME is its text: they differ for 1+2.
      if (value === undefined || (braced === undefined && dollar === "" && !/^-?\d+$/.test(value)))
        isKnown = false;
      return braced === undefined && dollar === "" ? `(${value ?? ""})` : (value ?? "");
    },
  );
  const tokens = known.match(/\d+|[-+*/%()]/g) ?? [];
  // -- and ++ change variables, ** is a power, and 010 is eight.
  if (
    !isKnown ||
    known.length > MOST_CHARACTERS ||
    tokens.length === 0 ||
    tokens.join("") !== known.replace(/\s/g, "") ||
    /--|\+\+|\*\*|\b0\d/.test(known)
  )
    return undefined;
  let at = 0;
  const checked = (value: number): number => {
    if (!Number.isSafeInteger(value)) isKnown = false;
    return value;
  };
  const factor = (): number => {
    const token = tokens[at++];
    if (token === "-") return -factor();
    if (token === "+") return factor();
    if (token !== "(")
      return checked(token === undefined || !/^\d+$/.test(token) ? Number.NaN : Number(token));
    const value = sum();
    return tokens[at++] === ")" ? value : checked(Number.NaN);
  };
  const product = (): number => {
    let value = factor();
    while (/^[*/%]$/.test(tokens[at] ?? "")) {
      const sign = tokens[at++];
      const by = factor();
      if (sign === "*") value = checked(value * by);
      else value = checked(sign === "/" ? Math.trunc(value / by) : value % by);
    }
    return value;
  };
  const sum = (): number => {
    let value = product();
    while (tokens[at] === "+" || tokens[at] === "-")
      value = checked(tokens[at++] === "+" ? value + product() : value - product());
    return value;
  };
  const value = sum();
  return isKnown && at === tokens.length ? value + 0 : undefined;
}
