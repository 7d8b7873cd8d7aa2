import { ProfilePageSchema, ProfileRecordSchema } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import { getProfile, listProfiles, type Database } from "@internevo/store";
import { Type } from "typebox";
import type { ApiInstance } from "../http/instance.ts";
import { PageQuery } from "../http/pages.ts";
import { answers, IdParams } from "./shapes.ts";

export function registerProfileRoutes(app: ApiInstance, options: { readonly database: Database }): void {
  const { database } = options;
  app.get(
    "/profiles",
    { config: { role: "viewer" }, schema: { tags: ["profiles"], summary: "List profiles, newest first, without their curves", querystring: Type.Object(PageQuery, { additionalProperties: false }), response: answers({ 200: ProfilePageSchema }) } },
    async (request) => listProfiles(database.db, request.query),
  );
  app.get(
    "/profiles/:id",
    { config: { role: "viewer" }, schema: { tags: ["profiles"], summary: "One profile, with everything that was measured", params: IdParams, response: answers({ 200: ProfileRecordSchema }) } },
    async (request) => {
      const { id } = request.params;
      const profile = await getProfile(database.db, id);
      if (!profile) throw new ProblemError("not-found", `there is no profile ${id}`, [{ field: "id", value: id, message: "names no profile", remedy: "see GET /api/v1/profiles" }]);
      return profile;
    },
  );
}
