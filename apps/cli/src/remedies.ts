import type { ProblemDetail } from "@internevo/domain";

/** Commands that show what routes of the API list, by their paths without ids. */
const COMMANDS: Readonly<Record<string, string>> = {
  jobs: "internevo ps",
  profiles: "internevo profile",
  workloads: "internevo replan",
  tokens: "internevo token",
  webhooks: "internevo webhook",
  "webhooks/deliveries": "internevo webhook deliveries",
  projects: "internevo project",
  whoami: "internevo whoami",
};

const ROUTE = /\b(?:GET|POST|PUT|PATCH|DELETE) \/api\/v1\/([a-z/:-]*[a-z])/;
const OR_ROUTE = new RegExp(`, or ${ROUTE.source}`, "g");

/**
 * A remedy of the API with commands in place of routes. Where it names a command as well, the route is left
 * out; a route without a command stays.
 */
export const remedyInCommands = (remedy: string): string =>
  remedy.replaceAll(OR_ROUTE, "").replaceAll(new RegExp(ROUTE, "g"), (route, path: string) => {
    const command = COMMANDS[path.replaceAll(/\/:[a-z]+/gi, "")];
    return command === undefined ? route : `\`${command}\``;
  });

export const inCommands = (detail: ProblemDetail): ProblemDetail => ({
  ...detail,
  remedy: remedyInCommands(detail.remedy),
});
