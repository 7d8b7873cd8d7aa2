import { threadId } from "node:worker_threads";

/** Looks at nothing until it is ended. */
export function spin(): never {
  for (;;);
}
export const who = (): number => threadId;
export const warm = (): void => undefined;
