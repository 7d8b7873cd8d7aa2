import { ProposalPageSchema } from "@internevo/contracts";
import { Line, ProposalSchema, type Proposal, type Workload } from "@internevo/domain";
import { carryOutProposal } from "@internevo/stages";
import {
  assertAnswerable,
  getWorkload,
  listProposals,
  lockProposal,
  moveProposal,
  type Database,
  type Queryable,
  type Transaction,
} from "@internevo/store";
import { Type } from "typebox";
import { noWorkload } from "../http/absent.ts";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { mutate } from "../http/mutations.ts";
import { PageQuery } from "../http/pages.ts";
import { answers, headers, IdParams } from "./shapes.ts";

const tags = ["workloads"];
const ProposalParams = Type.Object({ ...IdParams.properties, proposalId: Line(100) });

export async function workloadOf(db: Queryable, id: string): Promise<Workload> {
  const workload = await getWorkload(db, id);
  if (!workload) throw noWorkload(id);
  return workload;
}

interface Answer {
  readonly summary: string;
  readonly description: string;
  readonly give: (tx: Transaction, workload: Workload, proposalId: string, who: string) => Promise<Proposal>;
}

/** What somebody can say to a proposal. */
const ANSWERS: Readonly<Record<"try" | "apply" | "dismiss", Answer>> = {
  try: {
    summary: "Have a run try a proposed plan for a few steps",
    description:
      "The run that does the workload's work goes over to the plan at a checkpoint, compares `compareSteps` steps of " +
      "the workload, and goes back. The proposal is `trying`, then `tried`, and says what the plan gained.",
    give: (tx, workload, proposalId, askedBy) =>
      carryOutProposal(tx, { workload, proposalId, how: "try", askedBy, origin: "person" }),
  },
  apply: {
    summary: "Have a run go on under a proposed plan",
    description:
      "The run that does the workload's work goes over to the plan at a checkpoint. It goes back where it gains less " +
      "than the workload's `gainThreshold`. The proposal is `applying`, then `applied` or `returned`.",
    give: (tx, workload, proposalId, askedBy) =>
      carryOutProposal(tx, { workload, proposalId, how: "apply", askedBy, origin: "person" }),
  },
  dismiss: {
    summary: "Say no to a proposed plan",
    description: "The same change of plans is not proposed again, unless it promises more.",
    give: async (tx, workload, proposalId, who) => {
      assertAnswerable(await lockProposal(tx, workload.id, proposalId));
      const moved = await moveProposal(tx, proposalId, { to: "dismissed", reason: `dismissed by ${who}` });
      if (!moved) throw new Error(`proposal ${proposalId} was locked, and moved`);
      return moved;
    },
  },
};

export function registerProposalRoutes(app: ApiInstance, database: Database): void {
  app.get(
    "/workloads/:id/proposals",
    {
      config: { role: "viewer", scope: "workload" },
      schema: {
        tags,
        summary: "Better plans that were found, and what became of them, newest first",
        params: IdParams,
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers({ 200: ProposalPageSchema }),
      },
    },
    async (request) => {
      await workloadOf(database.db, request.params.id);
      return listProposals(database.db, request.params.id, request.query);
    },
  );
  for (const [name, { summary, description, give }] of Object.entries(ANSWERS))
    app.post(
      `/workloads/:id/proposals/:proposalId/${name}`,
      {
        config: { role: "operator", scope: "workload" },
        schema: {
          tags,
          summary,
          description,
          headers: headers.idempotent,
          params: ProposalParams,
          response: answers({ 200: ProposalSchema }),
        },
      },
      async (request, reply) =>
        mutate(database, request, reply, async (tx) => {
          const { id, proposalId } = request.params;
          const body = await give(tx, await workloadOf(tx, id), proposalId, actorOf(request).name);
          return { status: 200, body, target: id };
        }),
    );
}
