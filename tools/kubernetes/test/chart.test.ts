import { readFileSync } from "node:fs";
import { join } from "node:path";
import { checkerOf, type Definition } from "@internevo/launcher/test-definitions";
import { describe, expect, it } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { CASES, caseNames, CHART, digestIn, digestOf, goldenOf } from "../src/chart.ts";
import type { Manifest } from "../src/manifests.ts";

interface PodSpec {
  readonly serviceAccountName: string;
  readonly automountServiceAccountToken: boolean;
  readonly enableServiceLinks: boolean;
  readonly terminationGracePeriodSeconds: number;
  readonly securityContext: object;
  readonly containers: readonly [
    {
      readonly securityContext: object;
      readonly env: readonly {
        readonly name: string;
        readonly value?: string;
        readonly valueFrom?: object;
      }[];
    } & Record<string, unknown>,
  ];
}
interface Deployment extends Manifest {
  readonly spec: { readonly replicas?: number; readonly template: { readonly spec: PodSpec } };
}
type Rules = readonly { readonly resources: readonly string[]; readonly verbs: readonly string[] }[];

const SERVICES = ["api", "executor-supervisor", "planner", "profiler", "replanner", "trial-runner"];

const schemas = (path: string) =>
  JSON.parse(readFileSync(path, "utf8")) as {
    readonly kinds: Readonly<Record<string, string>>;
    readonly components: { readonly schemas: Definition };
  };
const own = schemas(join(CASES, "definitions.json"));
const ofPods = schemas(
  join(import.meta.dirname, "../../../libs/launcher/src/kubernetes/definitions/job-template.json"),
);
const checkers = new Map(
  Object.entries(own.kinds).map(([kind, name]) => [
    kind,
    checkerOf({
      components: { schemas: { ...ofPods.components.schemas, ...own.components.schemas } },
      $ref: `#/components/schemas/${name}`,
    }),
  ]),
);
const golden = (name: string): string => readFileSync(goldenOf(name), "utf8");
const objectsOf = (name: string): Manifest[] =>
  parseAllDocuments(golden(name)).flatMap((each) => (each.toJSON() as Manifest | null) ?? []);
const ofKind = (name: string, kind: string): Manifest[] =>
  objectsOf(name).filter((each) => each.kind === kind);
const podsOf = (name: string): Map<string, PodSpec> =>
  new Map(
    ofKind(name, "Deployment").map((each) => [
      each.metadata.name.replace(/^internevo-/, ""),
      (each as Deployment).spec.template.spec,
    ]),
  );

describe.each(caseNames())("the chart with the values %s", (name) => {
  it("is what its golden file was made from: else run `npm run kubernetes -- chart --write`", () => {
    expect(digestIn(golden(name))).toBe(digestOf(name));
  });

  it("makes objects that are valid by the published definitions, and have no other field", () => {
    for (const each of objectsOf(name)) {
      const kind = `${each.apiVersion} ${each.kind}`;
      const check = checkers.get(kind);
      expect(check?.(each), `${kind} ${each.metadata.name}: ${JSON.stringify(check?.errors)}`).toBe(true);
    }
  });

  it("has pods that hold no rights on their machine, and no secret in their description", () => {
    for (const spec of podsOf(name).values()) {
      expect(spec).toMatchObject({
        enableServiceLinks: false,
        securityContext: { runAsNonRoot: true, runAsUser: 10001, seccompProfile: { type: "RuntimeDefault" } },
      });
      expect(spec.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(30);
      const [container] = spec.containers;
      expect(container).toMatchObject({
        securityContext: {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ["ALL"] },
        },
        startupProbe: { httpGet: { path: "/healthz" } },
        livenessProbe: { httpGet: { path: "/healthz" } },
        readinessProbe: { httpGet: { path: "/readyz" } },
      });
      for (const { name: variable, value } of container.env)
        if (/_URL$|TOKEN/.test(variable) && !/MLFLOW/.test(variable)) expect(value).toBeUndefined();
      const names = container.env.map((each) => each.name);
      expect(new Set(names).size).toBe(names.length);
    }
    expect(ofKind(name, "Secret")).toEqual([]);
  });

  it("has a budget for each service with several pods, and for no other", () => {
    const several = ofKind(name, "Deployment")
      .filter((each) => ((each as Deployment).spec.replicas ?? 3) > 1)
      .map(({ metadata }) => metadata.name);
    expect(ofKind(name, "PodDisruptionBudget").map(({ metadata }) => metadata.name)).toEqual(several);
  });
});

describe("the chart", () => {
  it("gives tokens to those that ask the API server alone, and each its own rights", () => {
    const accounts = [...podsOf("plain")].map(([service, spec]) => [
      service,
      spec.serviceAccountName,
      spec.automountServiceAccountToken,
    ]);
    expect(accounts).toEqual([
      ["api", "internevo-look", true],
      ["executor-supervisor", "internevo-launch", true],
      ["planner", "internevo", false],
      ["profiler", "internevo-launch", true],
      ["replanner", "internevo", false],
      ["trial-runner", "internevo-launch", true],
    ]);
    const rights = ["Role", "ClusterRole"].flatMap((kind) =>
      ofKind("plain", kind).map((each) => [
        each.metadata.name,
        (each["rules"] as Rules).map(({ resources, verbs }) => `${resources.join()}: ${verbs.join()}`),
      ]),
    );
    expect(Object.fromEntries(rights)).toEqual({
      "internevo-launch": [
        "jobsets: get,list,watch,create,patch,delete",
        "pods: list,watch,delete",
        "workloads: list,watch",
      ],
      "internevo-look": ["jobsets: list"],
      "internevo-internevo-launch-nodes": ["nodes: list,watch"],
      "internevo-internevo-look-nodes": ["nodes: list"],
    });
  });

  it("has no rights where nothing is launched", () => {
    expect([...podsOf("alone").values()].some((spec) => spec.automountServiceAccountToken)).toBe(false);
    const kinds = objectsOf("alone").map(({ kind }) => kind);
    expect(kinds).not.toContain("Role");
    expect(kinds).not.toContain("ClusterRole");
  });

  it("tells the API's token to the API alone", () => {
    const told = [...podsOf("full")].filter(([, { containers }]) =>
      containers[0].env.some(({ name }) => name === "INTERNEVO_API_TOKEN"),
    );
    expect(told.map(([service]) => service)).toEqual(["api"]);
  });

  it("lets only the API be reached, and /metrics by monitoring alone", () => {
    const reached = (name: string) =>
      ofKind(name, "NetworkPolicy").flatMap((each) => {
        const { ingress } = each["spec"] as { readonly ingress?: readonly { readonly ports: unknown }[] };
        return (ingress ?? []).map(({ ports }) => [each.metadata.name, ports]);
      });
    const http = ["internevo-api", [{ protocol: "TCP", port: "http" }]];
    expect(reached("plain")).toEqual([http]);
    expect(reached("full")).toEqual([["internevo", [{ protocol: "TCP", port: "health" }]], http]);
  });

  it("starts every service", () => {
    const values = parse(readFileSync(join(CHART, "values.yaml"), "utf8")) as Record<string, object>;
    expect(Object.keys(values["services"]!).sort()).toEqual(SERVICES);
    expect([...podsOf("plain").keys()].sort()).toEqual(SERVICES);
  });

  it("is refused by the definitions where a field is misspelt", () => {
    const [deployment] = ofKind("plain", "Deployment") as [Deployment];
    const wrong = structuredClone(deployment) as unknown as {
      spec: { template: { spec: Record<string, unknown> } };
    };
    wrong.spec.template.spec["enableServiceLink"] = false;
    expect(checkers.get("apps/v1 Deployment")?.(wrong)).toBe(false);
  });
});
