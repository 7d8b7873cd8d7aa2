import { errorWords, type FigureErrors } from "@internevo/domain";
import type { TakenAs } from "./framework.ts";
import { repeated, type Faults } from "./problems.ts";

/**
 * What a value of an option, for which no plan has a word, is taken as, or why it is refused; null: it
 * changes nothing.
 */
type Judgement = Pick<TakenAs, "as" | "errs"> | { readonly message: string; readonly remedy: string } | null;
export type Judge = (value: unknown) => Judgement;
export type Judges = Readonly<Record<string, Judge>>;

/** Where judgements are told. */
export interface Judged {
  readonly faults: Faults;
  readonly takenAs: TakenAs[];
}

/** A command line has numbers as texts. */
const plain = (value: unknown): unknown =>
  typeof value === "string" && value.trim() !== "" && Number.isFinite(Number(value)) ? Number(value) : value;

const isHarmless = (value: unknown, harmless: readonly unknown[]): boolean =>
  value === null || value === undefined || harmless.includes(plain(value));

/** Anything but what is harmless is taken as something else. */
export const taken =
  (as: string, ...harmless: readonly unknown[]): Judge =>
  (value) =>
    isHarmless(value, harmless) ? null : { as };

/** What an option is taken as, and how the predicted figures err for it. */
export const erring = (as: string, errs: FigureErrors): Pick<TakenAs, "as" | "errs"> => ({
  as: `${as}; ${errorWords(errs)}`,
  errs,
});

/** As {@link taken}, where the predicted figures err for it. */
export const takenErring =
  (as: string, errs: FigureErrors, ...harmless: readonly unknown[]): Judge =>
  (value) =>
    isHarmless(value, harmless) ? null : erring(as, errs);

/** Anything but what is harmless is refused. */
export const refused =
  (message: string, remedy: string, ...harmless: readonly unknown[]): Judge =>
  (value) =>
    isHarmless(value, harmless) ? null : { message, remedy };

/** A section is judged by its switch. */
export const ifEnabled =
  (name: string, judge: Judge): Judge =>
  (value) =>
    typeof value === "object" && value !== null && (value as Record<string, unknown>)[name] === true
      ? judge(true)
      : null;

/** One judgement for several names. */
export const judgesOf = (names: string, judge: Judge): Judges =>
  Object.fromEntries(
    names
      .trim()
      .split(/\s+/)
      .map((name) => [name, judge]),
  );

/** Tells what an option is taken as, or why it is refused. @returns whether it changes nothing. */
export function isWithoutEffect(
  option: string,
  value: unknown,
  judge: Judge | undefined,
  { faults, takenAs }: Judged,
): boolean {
  const judgement = judge?.(value) ?? null;
  if (judgement === null) return true;
  if ("as" in judgement) takenAs.push({ option, value: repeated(value), ...judgement });
  else faults.add(option, value, judgement.message, judgement.remedy);
  return false;
}

/** How the executor does what a framework has options for. */
export const KERNELS = "the executor's own kernels, whose times are predicted";
export const BUCKETS = "the executor's own buckets, for which its times and memory are predicted";
export const BLOCKWISE = "blockwise attention, which keeps no scores";
export const PLANNED_OPTIMIZER = "has other states and other work than Adam, which is planned for";
