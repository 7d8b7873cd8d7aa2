import type { ProblemDetail } from "@internevo/domain";

/** Commands that show what routes of the API list, by their paths without ids. */
const COMMANDS: Readonly<Record<string, string>> = {
  jobs: "internevo ps",
  "jobs/artifacts": "internevo artifacts list",
  profiles: "internevo profile",
  workloads: "internevo replan",
  tokens: "internevo token",
  webhooks: "internevo webhook",
  "webhooks/deliveries": "internevo webhook deliveries",
  projects: "internevo project",
  whoami: "internevo whoami",
};

const ROUTE = /\b(?:GET|POST|PUT|PATCH|DELETE) \/api\/v1\/([A-Za-z0-9/:-]*[A-Za-z0-9])/;
const OR_ROUTE = new RegExp(`, or ${ROUTE.source}`, "g");

/** A change of one kind's days. */
const DAYS = /\bPATCH \/api\/v1\/retention with \{"([a-z]+)": (\d+)\}/gi;

/** An id in a path, or what stands for one: `:id`. */
const ID = /\/(:[a-z]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/gi;

/** The ids of a path, for whoever runs the command. */
const idsOf = (path: string): string =>
  [...path.matchAll(ID)]
    .map(([, id = ""]) => id)
    .filter((id) => !id.startsWith(":"))
    .map((id) => ` ${id}`)
    .join("");

/**
 * A remedy of the API with commands in place of routes. Where it names a command as well, the route is left
 * out; a route without a command stays.
 */
export const remedyInCommands = (remedy: string): string =>
  remedy
    .replaceAll(OR_ROUTE, "")
    .replaceAll(DAYS, "`internevo retention set --$1 $2d`")
    .replaceAll(new RegExp(ROUTE, "g"), (route, path: string) => {
      const command = COMMANDS[path.replaceAll(ID, "")];
      return command === undefined ? route : `\`${command}${idsOf(path)}\``;
    });

export const inCommands = (detail: ProblemDetail): ProblemDetail => ({
  ...detail,
  remedy: remedyInCommands(detail.remedy),
});
