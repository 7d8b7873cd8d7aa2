import { spawn } from "node:child_process";
import type { LookupAddress } from "node:dns";
import { isIP } from "node:net";
import { FairTurns } from "@internevo/service-kit";

export class UnknownNameError extends Error {
  constructor(host: string) {
    super(`${host} is no name that leads to an address`);
    this.name = "UnknownNameError";
  }
}

/** Names that are looked up at once, for all projects and for one. */
const AT_ONCE = 256;
const AT_ONCE_OF_ONE = 16;

/**
 * Looks names up as every program of the machine does: its hosts file, its search domains. A program of its own
 * does it, `getent`, and is ended where nobody waits for it any more. Node's `dns.lookup` cannot be ended. It holds
 * one of few threads until the name's server has not answered for long: names of one project would stop all.
 */
export class Names {
  readonly #turns = new FairTurns({
    atOnce: AT_ONCE,
    atOnceOfOne: AT_ONCE_OF_ONE,
    mostOfOne: Infinity,
    mostWaiting: Infinity,
  });

  /**
   * @param project whose webhook asks: projects take turns
   * @returns addresses in the order in which to try them, one or more
   * @throws UnknownNameError; the signal's reason; an error of the system where `getent` cannot be started
   */
  resolve(host: string, project: string, signal: AbortSignal): Promise<LookupAddress[]> {
    return this.#turns.run(project, signal, () => addressesOf(host, signal));
  }
}

async function addressesOf(host: string, signal: AbortSignal): Promise<LookupAddress[]> {
  const child = spawn("getent", ["ahosts", "--", host], {
    stdio: ["ignore", "pipe", "ignore"],
    signal,
    killSignal: "SIGKILL",
  });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
  await new Promise<void>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", () => resolve());
  }).catch((error: unknown) => {
    throw signal.aborted ? signal.reason : error;
  });
  // An address has a line for each kind of socket.
  const addresses = new Set(
    text.split("\n").flatMap((line) => (/\bSTREAM\b/.test(line) ? [line.split(/\s+/)[0] ?? ""] : [])),
  );
  const found = [...addresses].map((address) => ({ address, family: isIP(address) }));
  const known = found.filter(({ family }) => family !== 0);
  if (known.length === 0) throw new UnknownNameError(host);
  return known;
}
