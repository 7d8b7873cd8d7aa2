import { hostname } from "node:os";

/** The names by which a host calls itself. */
const OWN_NAMES = ["localhost", "127.0.0.1", "::1"];

/** This machine, as locks and records name it. */
export const ownHost = (): string => hostname();

/** A host as locks and records name it. */
export const hostId = (name: string): string => (OWN_NAMES.includes(name) ? ownHost() : name);
