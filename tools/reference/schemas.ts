// Publishes the JSON schemas of what people write and read, and the events as AsyncAPI, to docs/schemas:
// `node tools/reference/schemas.ts`.
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { asyncApi, ASYNCAPI_FILE, SCHEMAS_URL } from "@internevo/contracts";
import { JobFileSchema, PlanningResultSchema, ProfileSchema } from "@internevo/domain";

export const SCHEMAS_DIRECTORY = fileURLToPath(new URL("../../docs/schemas/", import.meta.url));

const publish = (name: string, title: string, schema: object): string =>
  `${JSON.stringify({ $schema: "https://json-schema.org/draft/2020-12/schema", ...schema, $id: `${SCHEMAS_URL}${name}.schema.json`, title }, null, 2)}\n`;

/** File name and text of every published schema. */
export const SCHEMAS: readonly (readonly [file: string, text: string])[] = [
  ["job.schema.json", publish("job", "InternEvo job", JobFileSchema)],
  ["plan-result.schema.json", publish("plan-result", "InternEvo planning result", PlanningResultSchema)],
  ["profile.schema.json", publish("profile", "InternEvo cluster profile", ProfileSchema)],
  [ASYNCAPI_FILE, `${JSON.stringify(asyncApi(), null, 2)}\n`],
];

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  mkdirSync(SCHEMAS_DIRECTORY, { recursive: true });
  for (const [file, text] of SCHEMAS) writeFileSync(SCHEMAS_DIRECTORY + file, text);
}
