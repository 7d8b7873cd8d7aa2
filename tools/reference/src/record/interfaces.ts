import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { productServices, startLocalStack } from "@internevo/local-stack";
import { SCHEMAS } from "../../schemas.ts";
import { digestOf, keep, type Entry, type Section } from "./records.ts";

interface OpenApi {
  readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}

/** The OpenAPI document of a running API, an entry an operation, and the published schemas. */
export async function recordInterfaces(): Promise<Section> {
  const dataDirectory = await mkdtemp(join(tmpdir(), "internevo-record-"));
  const stack = await startLocalStack({
    dataDirectory,
    services: productServices().filter(({ name }) => name === "api"),
  });
  try {
    const { apiUrl } = stack.info();
    if (apiUrl === null) throw new Error("the stack has no API");
    const { paths, ...rest } = (await (await fetch(new URL("/docs/json", apiUrl))).json()) as OpenApi;
    const operations = Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, answer]): Entry => ({
        key: `${method.toUpperCase()} ${path}`,
        answer,
      })),
    );
    const { servers: _servers, ...document } = rest as Record<string, unknown>;
    const schemas = SCHEMAS.map(([file, text]): Entry => ({ key: file, answer: JSON.parse(text) }));
    return keep([...operations, { key: "the rest of the document", answer: document }, ...schemas], digestOf);
  } finally {
    await stack.stop();
    await rm(dataDirectory, { recursive: true, force: true });
  }
}
