import type { LookupAddress } from "node:dns";
import { isIP, type LookupFunction } from "node:net";
import { ProblemError } from "@internevo/domain";
import ipaddr from "ipaddr.js";
import { Type } from "typebox";

export const PRIVATE_ADDRESSES_SETTING = "INTERNEVO_WEBHOOK_PRIVATE_ADDRESSES";

/** Read by the API and by the service that delivers, alike. */
export const webhookConfig = {
  [PRIVATE_ADDRESSES_SETTING]: Type.Boolean({
    default: false,
    description:
      "webhooks may send to private, link-local and loopback addresses; without it, only to public ones",
  }),
};

export interface AddressRule {
  /** Everything is allowed, also this machine and its network. */
  readonly privateAddresses: boolean;
}

/** Whether an address belongs to the public Internet: nothing that is reserved, and no IPv4 address in IPv6 clothes. */
export function isPublicAddress(address: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const known = ipaddr.process(address);
  // What routers took for IPv4 addresses once (RFC 4291, section 2.5.5.1): no host of the Internet has one.
  if (known instanceof ipaddr.IPv6 && known.match(ipaddr.IPv6.parseCIDR("::/96"))) return false;
  return known.range() === "unicast";
}

export class RefusedAddressError extends Error {
  constructor(host: string) {
    super(`${host} has no public address`);
    this.name = "RefusedAddressError";
  }
}

/** Without the brackets of an IPv6 address. */
const hostOf = (url: URL): string => url.hostname.replace(/^\[(.*)\]$/, "$1");

/** @throws RefusedAddressError for an address that is written out and may not be used */
export function assertHost(url: URL, { privateAddresses }: AddressRule): void {
  const host = hostOf(url);
  if (!privateAddresses && isIP(host) !== 0 && !isPublicAddress(host)) throw new RefusedAddressError(host);
}

/**
 * Looks a name up as a connection needs it, for the addresses that may be used. The connection goes to one of
 * them: nobody can answer another one between the look and the connection.
 */
export const allowedLookup =
  (
    { privateAddresses }: AddressRule,
    resolve: (host: string) => Promise<readonly LookupAddress[]>,
  ): LookupFunction =>
  (host, options, callback) => {
    resolve(host).then(
      (found) => {
        const allowed = found.filter(({ address }) => privateAddresses || isPublicAddress(address));
        const [first] = allowed;
        if (!first) callback(new RefusedAddressError(host), []);
        else if (options.all === true) callback(null, allowed);
        else callback(null, first.address, first.family);
      },
      (error: unknown) => callback(error as NodeJS.ErrnoException, []),
    );
  };

const invalidUrl = (value: string, message: string, remedy: string): ProblemError =>
  new ProblemError("bad-request", `the URL ${message}`, [{ field: "url", value, message, remedy }]);

/**
 * Checks the URL of a webhook as far as it can be without asking for it.
 * @returns warnings. @throws ProblemError `bad-request`
 */
export function checkReceiver(text: string, rule: AddressRule): string[] {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !["https:", "http:"].includes(url.protocol) || url.hostname === "")
    throw invalidUrl(text, "is no https or http URL", "give for example https://example.org/events");
  if (url.username !== "" || url.password !== "")
    throw invalidUrl(
      text.replace(/\/\/[^@/]*@/, "//…@"),
      "has a user or a password in it",
      "leave them out: the receiver knows us by the signature",
    );
  if (url.hash !== "") throw invalidUrl(text, "has a fragment (#)", "leave it out: no server sees it");
  const host = hostOf(url);
  const isLocalName = /(?:^|\.)localhost\.?$/.test(host);
  if (!rule.privateAddresses && (isLocalName || (isIP(host) !== 0 && !isPublicAddress(host))))
    throw invalidUrl(
      text,
      "is not on the public Internet",
      `give a public address, or have the installation allow others by ${PRIVATE_ADDRESSES_SETTING}=true`,
    );
  return url.protocol === "http:"
    ? ["http is not encrypted: whoever is on the way can read the events. Use https where you can."]
    : [];
}
