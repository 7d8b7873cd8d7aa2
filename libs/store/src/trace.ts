import { randomBytes } from "node:crypto";

const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$/;

/** A new W3C trace context, sampled. */
export const newTraceparent = (): string =>
  `00-${randomBytes(16).toString("hex")}-${randomBytes(8).toString("hex")}-01`;

/** The trace id of a W3C `traceparent`, or undefined when it is none. */
export const traceIdOf = (traceparent: string): string | undefined => TRACEPARENT.exec(traceparent)?.[1];
