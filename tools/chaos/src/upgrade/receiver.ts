import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

/** A receiver of webhooks that says thank you. */
export interface Receiver {
  readonly url: string;
  /** `JOB: from → to` of each transition that it was told of. */
  readonly transitions: ReadonlySet<string>;
  close(): void;
}

export const transitionWords = (jobId: string, from: string | null, to: string): string =>
  `${jobId}: ${from ?? "nothing"} → ${to}`;

interface Told {
  readonly type: string;
  readonly data: { readonly jobId: string; readonly from: string | null; readonly to: string };
}

export async function startReceiver(): Promise<Receiver> {
  const transitions = new Set<string>();
  const server = createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (part: string) => void (body += part));
    request.on("end", () => {
      const { type, data } = JSON.parse(body) as Told;
      if (type.includes("job.transitioned")) transitions.add(transitionWords(data.jobId, data.from, data.to));
      response.writeHead(204).end();
    });
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    transitions,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
