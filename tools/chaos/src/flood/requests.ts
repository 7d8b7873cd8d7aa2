// What the attacks of `chaos -- flood` send, as bytes of HTTP/1.1.
import { shippedProfile } from "@internevo/cost-model";
import type { Profile } from "@internevo/domain";
import type { Attack } from "./attack.ts";

/** A request as it is sent. */
function bytesOf(token: string, method: string, path: string, body?: string): string {
  const head = `${method} /api/v1${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n`;
  if (body === undefined) return `${head}\r\n`;
  return `${head}Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

/** A profile of nearly a megabyte: many points. */
export function largeProfile(): Profile {
  const profile = shippedProfile("a800-128");
  const modules = [...profile.modules];
  const linear = modules.filter(({ shape }) => shape.module === "linear");
  const bytes = JSON.stringify(profile).length;
  const bytesOfOne = JSON.stringify(linear[0]).length + 12;
  for (let at = 0; bytes + at * bytesOfOne < 1_000_000; at += 1) {
    const { shape, medianSeconds } = linear[at % linear.length] as (typeof linear)[number];
    if (shape.module !== "linear") continue;
    // Slow enough for what they would compute.
    const rows = shape.rows + 1 + Math.floor(at / linear.length);
    modules.push({ shape: { ...shape, rows }, medianSeconds: medianSeconds * 10 });
  }
  return { ...profile, modules, name: "large" };
}

const jobOf = (over: object): object => ({
  name: "flood",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 4096 * 1024,
  cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
  ...over,
});

/** Names of the attacks; `none` is what others notice without one. */
export const ATTACKS = ["none", "forty", "downloads", "half-sent", "posts", "searches"] as const;
export type AttackName = (typeof ATTACKS)[number];

/** Where an attack goes, as whom, and the large profile that it downloads. */
export interface Target {
  readonly port: number;
  readonly token: string;
  readonly profileId: string;
}

/** A job whose thousands of paths are checked, and not there. */
function submission(token: string): string {
  const paths = Array.from({ length: 9_900 }, (_, at) => `/nowhere/${"x".repeat(80)}/${at}`);
  return bytesOf(
    token,
    "POST",
    "/jobs",
    JSON.stringify(jobOf({ steps: 10, data: { format: "text", paths } })),
  );
}

/** Sixteen different searches. */
const searchesOf = (token: string): string[] =>
  Array.from({ length: 16 }, (_, at) =>
    bytesOf(
      token,
      "POST",
      "/plans",
      JSON.stringify({ job: jobOf({ globalBatchTokens: 4096 * 128 * (at + 1) }), profile: "a800-128" }),
    ),
  );

/** @returns undefined of no attack */
export function attackOf(name: AttackName, { port, token, profileId }: Target): Attack | undefined {
  const download = bytesOf(token, "GET", `/profiles/${profileId}`);
  switch (name) {
    case "none":
      return undefined;
    case "forty": {
      const submit = submission(token);
      return {
        port,
        connections: 40,
        requests: searchesOf(token).flatMap((search) => [download, submit, search]),
      };
    }
    case "downloads":
      return { port, connections: 1500, requests: [download] };
    case "posts":
      return { port, connections: 40, requests: [submission(token)] };
    case "searches":
      return { port, connections: 40, requests: searchesOf(token) };
    case "half-sent":
      return { port, connections: 1000, requests: [submission(token)], onlyBytes: 900_000 };
  }
}
