/** Who may import whom: docs/architecture.md says it in words. */
const layers = {
  domain: [],
  plan: ["domain"],
  "cost-model": ["domain", "plan"],
  simulator: ["domain", "contracts", "plan", "cost-model"],
  search: ["domain", "plan", "cost-model"],
  profiles: ["domain", "contracts", "plan", "cost-model"],
  advisor: ["domain", "plan", "cost-model", "search"],
  frameworks: ["domain", "plan", "cost-model", "search"],
  contracts: ["domain"],
  bus: ["contracts", "domain"],
  store: ["contracts", "domain"],
  data: ["domain"],
  launcher: ["domain", "contracts"],
  profiling: ["domain", "contracts", "cost-model", "profiles", "data", "launcher"],
  trackers: ["contracts", "domain", "store"],
  "service-kit": ["bus", "store", "contracts", "domain"],
  webhooks: ["contracts", "domain", "service-kit", "store"],
  stages: [
    "domain",
    "contracts",
    "plan",
    "cost-model",
    "search",
    "profiles",
    "data",
    "launcher",
    "profiling",
    "store",
    "service-kit",
  ],
  client: ["contracts", "domain"],
  "local-stack": ["domain", "contracts", "bus", "store"],
  backup: ["domain", "store", "stages", "local-stack"],
};
const seenByPeople = {
  console: ["client", "domain", "contracts"],
  cli: [
    "client",
    "domain",
    "contracts",
    "plan",
    "cost-model",
    "simulator",
    "search",
    "advisor",
    "profiles",
    "frameworks",
    "data",
    "local-stack",
    "backup",
  ],
};
/** Sources that no product holds. */
const testsOnly = ["\\.test\\.tsx?$", "^(libs|apps|tools)/[^/]+/test/", "^libs/test-kit/"];
const pure = ["domain", "plan", "cost-model", "simulator", "search", "profiles", "advisor"];

const libraryRules = Object.entries(layers).map(([name, allowed]) => ({
  name: `lib-${name}`,
  comment: `libs/${name} may import ${allowed.join(", ") || "no other room"}`,
  severity: "error",
  from: { path: `^libs/${name}/src/`, pathNot: "\\.test\\.ts$" },
  to: { path: "^(libs|apps)/", pathNot: [`^libs/${name}/`, ...allowed.map((each) => `^libs/${each}/`)] },
}));

module.exports = {
  forbidden: [
    ...libraryRules,
    {
      name: "pure-libraries-do-no-io",
      severity: "error",
      from: { path: `^libs/(${pure.join("|")})/src/`, pathNot: "\\.test\\.ts$" },
      to: { dependencyTypes: ["core"] },
    },
    {
      name: "apps-do-not-import-apps",
      severity: "error",
      from: { path: "^apps/([^/]+)/", pathNot: "\\.test\\.ts$" },
      to: { path: "^apps/", pathNot: "^apps/$1/" },
    },
    ...Object.entries(seenByPeople).map(([name, allowed]) => ({
      name: `what-people-see-goes-through-the-client-${name}`,
      comment: `apps/${name} may import ${allowed.join(", ")}: the command line may start the local stack, and plan offline; everything else is the API's`,
      severity: "error",
      from: { path: `^apps/${name}/src/`, pathNot: "\\.test\\.tsx?$" },
      to: { path: "^libs/", pathNot: allowed.map((each) => `^libs/${each}/`) },
    })),
    {
      name: "only-tests-import-the-test-kit",
      severity: "error",
      from: { pathNot: testsOnly },
      to: { path: "^libs/test-kit/" },
    },
    { name: "no-cycles", severity: "error", from: {}, to: { circular: true } },
    { name: "no-unresolvable", severity: "error", from: {}, to: { couldNotResolve: true } },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    exclude: { path: "(^|/)dist/", pathNot: "node_modules" },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: "tsconfig.json" },
    enhancedResolveOptions: {
      exportsFields: ["exports"],
      conditionNames: ["import", "node", "default"],
      extensions: [".ts", ".tsx", ".js", ".json"],
    },
  },
};
