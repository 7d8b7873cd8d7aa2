import { brokenPromises, type Stored } from "../random/judge.ts";
import type { Heard } from "./followers.ts";

/** Some of many, for people. */
const some = (items: readonly number[]): string =>
  `${items.slice(0, 5).join(", ")}${items.length > 5 ? ` and ${items.length - 5} more` : ""}`;

/**
 * What a follower was not told. A step of a later attempt replaces that of the earlier and may be told again; one of
 * the same attempt may not.
 */
export function brokenByFollower(heard: Heard, stored: Stored): string[] {
  const broken: string[] = [];
  const lastTold = new Map(heard.steps.map((told) => [told.step, told]));
  const missing = stored.steps.filter(({ step }) => !lastTold.has(step)).map(({ step }) => step);
  if (missing.length > 0) broken.push(`${heard.name} missed ${missing.length} steps: ${some(missing)}`);
  const other = stored.steps.filter(({ step, loss }) => {
    const told = lastTold.get(step);
    return told !== undefined && told.loss !== loss;
  });
  if (other.length > 0)
    broken.push(`${heard.name} was told another loss of steps ${some(other.map(({ step }) => step))}`);
  const seen = new Set<string>();
  const twice = heard.steps.filter(({ step, attempt }) => {
    const key = `${step} ${attempt}`;
    return seen.has(key) || (seen.add(key), false);
  });
  if (twice.length > 0)
    broken.push(`${heard.name} was told steps of one attempt twice: ${some(twice.map(({ step }) => step))}`);
  if (heard.outOfOrder > 0) broken.push(`${heard.name} was told ${heard.outOfOrder} events out of order`);
  return broken;
}

/** Transitions that a webhook was not told of. */
export function brokenByWebhook(expected: readonly string[], told: ReadonlySet<string>): string[] {
  const missing = expected.filter((each) => !told.has(each));
  return missing.length === 0 ? [] : [`the webhook was not told of ${missing.join(", ")}`];
}

export { brokenPromises };
