import { setTimeout as sleep } from "node:timers/promises";
import { PATIENCE } from "./patience.ts";

type Truthy<T> = Exclude<T, false | null | undefined>;

/**
 * Looks again and again until something is there, because what happens is told by somebody else.
 * @param seconds of an idle machine; a busy one has {@link PATIENCE} times as many.
 * @param more is told when it was waited for in vain, such as a service's log.
 * @returns what was found. @throws Error that says what was waited for.
 */
export async function eventually<T>(
  what: string,
  look: () => Promise<T> | T,
  seconds = 30,
  more: () => string = () => "",
): Promise<Truthy<T>> {
  for (const end = performance.now() + PATIENCE * seconds * 1000; ; await sleep(20)) {
    const found = await look();
    if (found) return found as Truthy<T>;
    if (performance.now() > end)
      throw new Error(`waited ${PATIENCE * seconds} s in vain for ${what}\n${more()}`.trimEnd());
  }
}
