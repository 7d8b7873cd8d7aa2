import { once } from "node:events";
import { createServer, connect, type AddressInfo, type Server, type Socket } from "node:net";

/** What becomes of a link: its connections break and new ones are refused, or nothing passes and nobody is told. */
export const FAULTS = ["cut", "silent"] as const;
export type LinkFault = (typeof FAULTS)[number];

/** A TCP address through which another is reached, until it has a fault. */
export class Link {
  readonly #server: Server;
  #port: number;
  readonly #sockets = new Set<Socket>();
  #fault: LinkFault | undefined;
  #mends: NodeJS.Timeout | undefined;

  private constructor(targetPort: number) {
    this.#port = targetPort;
    this.#server = createServer((near) => this.#join(near));
  }

  static async to(targetPort: number): Promise<Link> {
    const link = new Link(targetPort);
    link.#server.listen(0, "127.0.0.1");
    await once(link.#server, "listening");
    return link;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  #join(near: Socket): void {
    if (this.#fault === "cut") return void near.resetAndDestroy();
    const far = connect(this.#port, "127.0.0.1");
    const ends: readonly [Socket, Socket][] = [
      [near, far],
      [far, near],
    ];
    for (const [one, other] of ends) {
      this.#sockets.add(one);
      one.on("data", (bytes) => {
        if (!other.destroyed && !other.write(bytes)) one.pause();
      });
      one.on("drain", () => this.#resume(other));
      // Whatever ends one side ends the other.
      one.on("error", () => one.destroy());
      one.on("end", () => other.end());
      one.on("close", () => {
        this.#sockets.delete(one);
        other.destroy();
      });
      if (this.#fault === "silent") one.pause();
    }
  }

  #resume(socket: Socket): void {
    if (this.#fault !== "silent") socket.resume();
  }

  /** Has a fault for so long; one that comes meanwhile replaces it. */
  fail(fault: LinkFault, seconds: number): void {
    clearTimeout(this.#mends);
    this.#fault = fault;
    for (const socket of this.#sockets) {
      if (fault === "cut") socket.resetAndDestroy();
      else socket.pause();
    }
    this.#mends = setTimeout(() => this.mend(), seconds * 1000);
  }

  /** Leads to another port from now on; what was open breaks. */
  leadTo(targetPort: number): void {
    this.#port = targetPort;
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  mend(): void {
    clearTimeout(this.#mends);
    this.#fault = undefined;
    for (const socket of this.#sockets) socket.resume();
  }

  close(): void {
    this.mend();
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }
}

/** The same addresses, of one or several servers, through links. @returns the links too, one a server */
export async function throughLinks(
  addresses: string,
): Promise<{ readonly addresses: string; readonly links: readonly Link[] }> {
  const links: Link[] = [];
  const changed: string[] = [];
  for (const address of addresses.split(",")) {
    const url = new URL(address);
    const link = await Link.to(Number(url.port));
    links.push(link);
    url.port = String(link.port);
    changed.push(url.href.replace(/\/$/, ""));
  }
  return { addresses: changed.join(","), links };
}
