import { BlockList, isIP } from "node:net";
import { ProblemError } from "@internevo/domain";

const SETTING = "INTERNEVO_API_TRUST_PROXY";
/** Proxies in a row; more are a mistake. */
const MOST_PROXIES = 20;

/**
 * Whether who sent a request on is believed what it says of where the request came from. @param hop 0: of the
 * connection itself
 */
export type TrustsProxy = (address: string, hop: number) => boolean;

const wrong = (value: string, message: string): ProblemError =>
  new ProblemError("bad-request", `${SETTING} ${message}`, [
    {
      field: SETTING,
      value,
      message,
      remedy:
        "give the number of proxies in front of the API, such as 1, or their addresses and ranges, such as 192.0.2.7,10.0.0.0/8",
    },
  ]);

function addRange(proxies: BlockList, text: string): void {
  const [address = "", prefix, ...more] = text.split("/");
  const version = isIP(address);
  const bits = version === 4 ? 32 : 128;
  if (version === 0 || more.length > 0)
    throw wrong(text, "has an entry that is neither an address nor a range");
  if (prefix !== undefined && (!/^\d{1,3}$/.test(prefix) || Number(prefix) > bits))
    throw wrong(text, `has a range whose prefix is not 1 to ${bits}`);
  // Whoever asks would say where it comes from.
  if (Number(prefix) === 0) throw wrong(text, "has a range of all addresses");
  const family = version === 4 ? "ipv4" : "ipv6";
  if (prefix === undefined) proxies.addAddress(address, family);
  else proxies.addSubnet(address, Number(prefix), family);
}

/**
 * Which proxies are believed. A number counts from the API: each proxy adds the address that it saw at the end of
 * `X-Forwarded-For`, and what stands before those may be anybody's text.
 * @param text a number of proxies, or their addresses and ranges, separated by commas; `true` is one
 * @throws ProblemError `bad-request`
 */
export function trustedProxies(text: string): TrustsProxy | false {
  const given = text.trim();
  if (given === "false" || given === "0") return false;
  if (given === "true" || /^\d+$/.test(given)) {
    const proxies = given === "true" ? 1 : Number(given);
    if (proxies > MOST_PROXIES) throw wrong(given, `is more than ${MOST_PROXIES} proxies`);
    return (_address, hop) => hop < proxies;
  }
  const proxies = new BlockList();
  for (const entry of given.split(",")) addRange(proxies, entry.trim());
  return (address) => {
    const version = isIP(address);
    return version !== 0 && proxies.check(address, version === 4 ? "ipv4" : "ipv6");
  };
}
