import { ApiProblemError } from "@internevo/client";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { describeError } from "./output.ts";
import { remedyInCommands } from "./remedies.ts";

it("names commands where the API names routes", () => {
  expect(remedyInCommands("see GET /api/v1/projects")).toBe("see `internevo project`");
  expect(remedyInCommands("see GET /api/v1/webhooks/:id/deliveries")).toBe(
    "see `internevo webhook deliveries`",
  );
  expect(remedyInCommands("ask for its plan only: `internevo plan`, or POST /api/v1/plans")).toBe(
    "ask for its plan only: `internevo plan`",
  );
  const id = "018f0000-0000-7000-8000-000000000000";
  expect(remedyInCommands(`did you mean log.txt? Otherwise see GET /api/v1/jobs/${id}/artifacts`)).toBe(
    `did you mean log.txt? Otherwise see \`internevo artifacts list ${id}\``,
  );
  expect(
    remedyInCommands('set days first, for example PATCH /api/v1/retention with {"checkpoints": 90}'),
  ).toBe("set days first, for example `internevo retention set --checkpoints 90d`");
  const unknown = `see GET /api/v1/jobs/${id}/nothing`;
  expect(remedyInCommands(unknown)).toBe(unknown);
  expect(remedyInCommands("give another name")).toBe("give another name");
  const refused = new ApiProblemError({
    type: "about:blank",
    title: "Not found",
    status: 404,
    code: "not-found",
    detail: "there is no project nlp",
    errors: [
      { field: "project", value: "nlp", message: "names no project", remedy: "see GET /api/v1/projects" },
    ],
  });
  expect(describeError(refused, false)).toContain("→ see `internevo project`");
  expect(describeError(refused, true)).toContain("see `internevo project`");
});

it("has a command for every route that a remedy of the services names", () => {
  const root = new URL("../../..", import.meta.url).pathname;
  const sources = ["apps/api/src", "libs/store/src"].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts"))
      .map((name) => readFileSync(join(root, folder, name), "utf8")),
  );
  const lists = sources.flatMap((text) => [...text.matchAll(/\babsent\("[a-z -]+", "([a-z-]+)"\)/g)]);
  expect(lists.length).toBeGreaterThan(2);
  const remedies = [
    ...sources.flatMap((text) => [...text.matchAll(/"([^"]*(?:see|of) (?:GET|POST) \/api\/v1\/[^"$]*)"/g)]),
    ...lists.map(([, list = ""]) => ["", `see GET /api/v1/${list}`] as const),
  ].map(([, remedy = ""]) => remedy);
  expect(remedies.length).toBeGreaterThan(7);
  for (const remedy of remedies) expect(remedyInCommands(remedy)).not.toContain("/api/v1");
});
