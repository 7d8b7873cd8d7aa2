import {
  API_PREFIX,
  GivenProfilesSchema,
  JobDetailSchema,
  ProfilePageSchema,
  ProfileRecordSchema,
  type GivenProfile,
  type ProfileRecord,
} from "@internevo/contracts";
import { ESTIMATED_PROFILES, GIVEN_PROFILES, parseProfile, shippedProfile } from "@internevo/cost-model";
import { measuringJob, MOST_GIVEN_PROFILES, ProblemError, ProfileSchema } from "@internevo/domain";
import {
  discardProfile,
  getJobDetail,
  getProfile,
  listProfiles,
  newestJobMeasuredFor,
  storeGivenProfile,
  submitJob,
  type Database,
  type Queryable,
} from "@internevo/store";
import { Type } from "typebox";
import { noProfile } from "../http/absent.ts";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { mutate, mutateUnkeyed } from "../http/mutations.ts";
import { PageQuery } from "../http/pages.ts";
import { visibleTo } from "../http/rights.ts";
import { answers, headers, IdParams } from "./shapes.ts";

async function profileOf(db: Queryable, id: string): Promise<ProfileRecord> {
  const profile = await getProfile(db, id);
  if (!profile) throw noProfile(id);
  return profile;
}

const givenProfile = (name: string): GivenProfile => ({
  name,
  device: shippedProfile(name).device.name,
  isEstimated: ESTIMATED_PROFILES.includes(name),
});

export function registerProfileRoutes(app: ApiInstance, options: { readonly database: Database }): void {
  registerProfileLists(app, options.database);
  registerProfileChanges(app, options.database);
  registerMeasureAgain(app, options.database);
}

function registerProfileLists(app: ApiInstance, database: Database): void {
  app.get(
    "/profiles",
    {
      config: { role: "viewer", scope: "visible" },
      schema: {
        tags: ["profiles"],
        summary: "List profiles, newest first, without their curves",
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers({ 200: ProfilePageSchema }),
      },
    },
    async (request) => listProfiles(database.db, request.query, visibleTo(actorOf(request))),
  );
  app.get(
    "/profiles/given",
    {
      config: { role: "viewer", scope: "any" },
      schema: {
        tags: ["profiles"],
        summary: "The profiles that need no measurement: shipped, and estimated from published figures",
        response: answers({ 200: GivenProfilesSchema }),
      },
    },
    () => ({ items: GIVEN_PROFILES.map(givenProfile) }),
  );
  app.get(
    "/profiles/:id",
    {
      config: { role: "viewer", scope: "profile" },
      schema: {
        tags: ["profiles"],
        summary: "One profile, with everything that was measured",
        params: IdParams,
        response: answers({ 200: ProfileRecordSchema }),
      },
    },
    async (request) => profileOf(database.db, request.params.id),
  );
}

function registerProfileChanges(app: ApiInstance, database: Database): void {
  app.post(
    "/profiles",
    {
      config: { role: "operator", scope: "any" },
      validatorCompiler: () => (data: unknown) => ({ value: data }),
      schema: {
        tags: ["profiles"],
        summary: "Store a profile, so that jobs can name it by its id",
        description: `It belongs to the token's project, where the same content keeps its id; tokens of the installation give to all projects. A project keeps ${MOST_GIVEN_PROFILES} at most; then the answer is a 403, \`quota-exceeded\`, until one is discarded. It needs no \`Idempotency-Key\`, and ignores one.`,
        body: ProfileSchema,
        response: answers({ 201: ProfileRecordSchema }),
      },
    },
    async (request, reply) => {
      const profile = parseProfile(request.body, "the profile");
      // The same content keeps its id: an answer of a megabyte need not be kept for a key.
      return mutateUnkeyed(database, request, reply, async (tx) => {
        const id = await storeGivenProfile(tx, profile, visibleTo(actorOf(request)));
        return {
          status: 201,
          body: await profileOf(tx, id),
          target: id,
          location: `${API_PREFIX}/profiles/${id}`,
        };
      });
    },
  );
  app.delete(
    "/profiles/:id",
    {
      config: { role: "operator", scope: "profile" },
      schema: {
        tags: ["profiles"],
        summary: "Discard a profile",
        description:
          "Tokens of a project discard what their project gave, tokens of the installation any. Jobs that used it still show it. A given one that nothing used is deleted. No other job uses it. If it is its cluster's newest, the next job measures the cluster: it uses an older profile only if it names it.",
        params: IdParams,
        response: answers({ 204: Type.Null() }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const { id } = request.params;
        if (!(await discardProfile(tx, id))) throw noProfile(id);
        return { status: 204, body: null, target: id };
      }),
  );
}

function registerMeasureAgain(app: ApiInstance, database: Database): void {
  app.post(
    "/profiles/:id/measure",
    {
      config: { role: "operator", scope: "installation" },
      schema: {
        tags: ["profiles"],
        summary: "Measure again what a profile was measured for",
        description:
          "Submits a job that measures what the newest job of the profile needs, and ends then. It belongs to the project `default`, and has only that job's model sizes, lengths, precision and cluster. Jobs that name the profile do not count.",
        headers: headers.idempotent,
        params: IdParams,
        response: answers({ 201: JobDetailSchema }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const { id } = request.params;
        const { name } = await profileOf(tx, id);
        const spec = await newestJobMeasuredFor(tx, id);
        if (spec === undefined)
          throw new ProblemError("conflict", `profile ${name} cannot be measured again`, [
            {
              field: "id",
              value: id,
              message: "was not measured for a job here",
              remedy: "submit a job with measureAgain: true and until: profiling",
            },
          ]);
        // The installation asks, and no project pays for it. So everybody in the default project may read it.
        const job = await submitJob(tx, measuringJob(spec), {
          traceparent: request.trace.traceparent,
          owner: actorOf(request).name,
        });
        const body = await getJobDetail(tx, job);
        return { status: 201, body, target: job, location: `${API_PREFIX}/jobs/${job}` };
      }),
  );
}
