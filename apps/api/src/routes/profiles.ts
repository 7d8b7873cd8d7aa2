import { API_PREFIX, ProfilePageSchema, ProfileRecordSchema, type ProfileRecord } from "@internevo/contracts";
import { parseProfile } from "@internevo/cost-model";
import { ProblemError, ProfileSchema } from "@internevo/domain";
import { getProfile, listProfiles, storeGivenProfile, type Database, type Queryable } from "@internevo/store";
import { Type } from "typebox";
import type { ApiInstance } from "../http/instance.ts";
import { mutate } from "../http/mutations.ts";
import { PageQuery } from "../http/pages.ts";
import { answers, headers, IdParams } from "./shapes.ts";

async function profileOf(db: Queryable, id: string): Promise<ProfileRecord> {
  const profile = await getProfile(db, id);
  if (!profile) throw new ProblemError("not-found", `there is no profile ${id}`, [{ field: "id", value: id, message: "names no profile", remedy: "see GET /api/v1/profiles" }]);
  return profile;
}

export function registerProfileRoutes(app: ApiInstance, options: { readonly database: Database }): void {
  const { database } = options;
  app.get(
    "/profiles",
    { config: { role: "viewer" }, schema: { tags: ["profiles"], summary: "List profiles, newest first, without their curves", querystring: Type.Object(PageQuery, { additionalProperties: false }), response: answers({ 200: ProfilePageSchema }) } },
    async (request) => listProfiles(database.db, request.query),
  );
  app.post(
    "/profiles",
    {
      config: { role: "operator" },
      validatorCompiler: () => (data: unknown) => ({ value: data }),
      schema: { tags: ["profiles"], summary: "Store a profile, so that jobs can name it by its id", description: "The same content keeps its id.", headers: headers.idempotent, body: ProfileSchema, response: answers({ 201: ProfileRecordSchema }) },
    },
    async (request, reply) => {
      const profile = parseProfile(request.body, "the profile");
      return mutate(database, request, reply, async (tx) => {
        const id = await storeGivenProfile(tx, profile);
        return { status: 201, body: await profileOf(tx, id), target: id, location: `${API_PREFIX}/profiles/${id}` };
      });
    },
  );
  app.get(
    "/profiles/:id",
    { config: { role: "viewer" }, schema: { tags: ["profiles"], summary: "One profile, with everything that was measured", params: IdParams, response: answers({ 200: ProfileRecordSchema }) } },
    async (request) => profileOf(database.db, request.params.id),
  );
}
