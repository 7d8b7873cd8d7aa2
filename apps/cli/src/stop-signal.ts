import { AsyncLocalStorage } from "node:async_hooks";

const current = new AsyncLocalStorage<AbortSignal>();

/** Whatever the work waits for, however deep in it, can ask whether the person still waits. */
export const withStopSignal = <Result>(signal: AbortSignal, work: () => Result): Result =>
  current.run(signal, work);

export const stopSignal = (): AbortSignal | undefined => current.getStore();
