import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { productServices } from "@internevo/local-stack";
import { expect, it } from "vitest";
import { parse } from "yaml";

const CHECKOUT = resolve(import.meta.dirname, "../..");

interface Service {
  readonly command?: readonly string[];
  readonly build: { readonly context: string; readonly dockerfile: string; readonly target: string };
}
const { services } = parse(readFileSync(`${CHECKOUT}/infra/compose/compose.yaml`, "utf8"), {
  merge: true,
}) as { services: Record<string, Service> };

it("the compose file starts every service of the product", () => {
  const started = Object.entries(services).flatMap(([name, { command }]) =>
    command ? [[name, ...command]] : [],
  );
  expect(started.sort()).toEqual(
    productServices()
      .map(({ name }) => [name, name])
      .sort(),
  );
});

it("the compose file builds images that the Dockerfile has", () => {
  const dockerfile = readFileSync(`${CHECKOUT}/infra/images/Dockerfile`, "utf8");
  const targets = [...dockerfile.matchAll(/^FROM \S+ AS (\S+)$/gm)].map(([, name]) => name);
  for (const [name, { build }] of Object.entries(services)) {
    expect([name, targets]).toEqual([name, expect.arrayContaining([build.target])]);
    expect(resolve(CHECKOUT, "infra/compose", build.context, build.dockerfile)).toBe(
      `${CHECKOUT}/infra/images/Dockerfile`,
    );
  }
});
