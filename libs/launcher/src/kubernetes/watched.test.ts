import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@internevo/test-kit";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { KubernetesApi } from "./api.ts";
import { WatchedNodes } from "./watched-nodes.ts";
import { WatchedList, type Named } from "./watched.ts";

const named = (name: string, version: number): Named => ({
  metadata: { name, uid: name, resourceVersion: String(version) },
});

/** What each question of a kind is answered with, in turn; the last one goes on. */
type Answer = (answer: ServerResponse) => void;

describe("objects that are watched", () => {
  let directory: string;
  let server: Server;
  let asked: URL[];
  let lists: Answer[];
  let watches: Answer[];
  let list: WatchedList<Named> | undefined;
  beforeEach(async () => {
    asked = [];
    lists = [];
    watches = [];
    server = createServer((question: IncomingMessage, answer) => {
      const url = new URL(question.url ?? "", "http://server");
      asked.push(url);
      const answers = url.searchParams.has("watch") ? watches : lists;
      const next = answers.length > 1 ? answers.shift() : answers[0];
      next?.(answer);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    directory = mkdtempSync(join(tmpdir(), "internevo-watched-"));
    const { port } = server.address() as AddressInfo;
    // Without TLS there is nothing to verify, which the client wants to be told.
    const cluster = { server: `http://127.0.0.1:${port}`, "insecure-skip-tls-verify": true };
    const clusters = [{ name: "c", cluster }];
    writeFileSync(
      join(directory, "kubeconfig"),
      JSON.stringify({
        apiVersion: "v1",
        kind: "Config",
        clusters,
        users: [{ name: "u", user: {} }],
        contexts: [{ name: "x", context: { cluster: "c", user: "u" } }],
        "current-context": "x",
      }),
    );
  });
  afterEach(() => {
    list?.close();
    server.closeAllConnections();
    server.close();
    rmSync(directory, { recursive: true, force: true });
  });

  const listed =
    (version: number, ...items: Named[]): Answer =>
    (answer) =>
      void answer.end(JSON.stringify({ metadata: { resourceVersion: String(version) }, items }));
  const told = (answer: ServerResponse, type: string, object: object): void =>
    void answer.write(`${JSON.stringify({ type, object })}\n`);
  const quiet: Answer = (answer) => void answer.flushHeaders();
  const refused =
    (status: number): Answer =>
    (answer) => {
      answer.statusCode = status;
      answer.end(JSON.stringify({ message: `status ${status}` }));
    };
  const names = (): string[] => list?.objects.map(({ metadata }) => metadata.name) ?? [];
  const api = (): KubernetesApi => new KubernetesApi({ kubeconfig: join(directory, "kubeconfig") });
  const follow = (): void => {
    list = new WatchedList(api(), "/objects", { labelSelector: "a=b" });
  };
  const until = (what: string, met: () => boolean): Promise<unknown> => eventually(what, met, 20);
  const versionOf = (url: URL | undefined): string | null | undefined =>
    url?.searchParams.get("resourceVersion");

  it("are those of the list, and what came, changed and went since", async () => {
    lists = [listed(5, named("a", 1), named("b", 2))];
    watches = [
      (answer) => {
        told(answer, "ADDED", named("c", 6));
        told(answer, "DELETED", named("a", 7));
      },
    ];
    follow();
    await until("both have come", () => names().join() === "b,c");
    expect(list?.away).toBeUndefined();
    expect(versionOf(asked[1])).toBe("5");
    expect(asked.every(({ searchParams }) => searchParams.get("labelSelector") === "a=b")).toBe(true);
  });

  it("are watched on from the last bookmark when a watch ends, without another list", async () => {
    lists = [listed(5, named("a", 1))];
    watches = [
      (answer) => {
        told(answer, "BOOKMARK", { metadata: { resourceVersion: "9" } });
        answer.end();
      },
      quiet,
    ];
    follow();
    await until("the second watch", () => asked.length === 3);
    expect(versionOf(asked[2])).toBe("9");
    expect(asked[2]?.searchParams.get("allowWatchBookmarks")).toBe("true");
    expect(names()).toEqual(["a"]);
  });

  it.each<[what: string, Answer]>([
    ["says so in the watch", (answer) => (told(answer, "ERROR", { code: 410 }), void answer.end())],
    ["refuses the watch", refused(410)],
  ])("are listed anew where the server has forgotten the version, and %s", async (_, forgotten) => {
    lists = [listed(5, named("a", 1)), listed(20, named("b", 19))];
    watches = [forgotten, quiet];
    follow();
    await until("the second list", () => names().join() === "b");
    await until("the second watch", () => versionOf(asked.at(-1)) === "20");
  });

  it("are told as of before while the server is away, which is said", async () => {
    lists = [listed(5, named("a", 1))];
    watches = [(answer) => answer.destroy(), refused(503), (answer) => told(answer, "ADDED", named("b", 6))];
    follow();
    await until("it is away", () => list?.away !== undefined && names().length === 1);
    await until("it is back", () => names().join() === "a,b");
    expect(list?.away).toBeUndefined();
    expect(asked.filter(({ searchParams }) => !searchParams.has("watch"))).toHaveLength(1);
  });

  it("are none where looking is forbidden, which is told from a server that is away", async () => {
    lists = [refused(403)];
    follow();
    await until("it is refused", () => list?.refusal?.status === 403);
    expect(names()).toEqual([]);
  });

  it("are watched once for all launches that need the nodes of a cluster, which keep what they read", async () => {
    const ready = { type: "Ready", status: "True", message: "it is" };
    const node = {
      metadata: { ...named("n1", 1).metadata, labels: { rack: "r1" }, annotations: { long: "text" } },
      spec: { podCIDR: "10.0.0.0/24" },
      status: {
        conditions: [{ type: "DiskPressure", status: "False" }, ready],
        allocatable: { cpu: "8" },
        images: [{ names: ["many"] }],
      },
    };
    lists = [listed(5, node)];
    watches = [quiet];
    const first = new WatchedNodes(api());
    const second = new WatchedNodes(api());
    await until("both see the node", () => first.nodes.length === 1 && second.nodes.length === 1);
    expect(second.nodes).toEqual([
      {
        metadata: { name: "n1", uid: "n1", labels: { rack: "r1" } },
        spec: {},
        status: { conditions: [ready], allocatable: { cpu: "8" } },
      },
    ]);
    await until("the watch", () => asked.length === 2);
    first.close();
    const third = new WatchedNodes(api());
    expect(third.nodes).toHaveLength(1);
    third.close();
    second.close();
    second.close();
    // When nobody needs them any more, the next who does asks anew.
    const fourth = new WatchedNodes(api());
    await until("another list", () => fourth.nodes.length === 1);
    fourth.close();
    expect(asked.filter(({ searchParams }) => !searchParams.has("watch"))).toHaveLength(2);
  });
});
