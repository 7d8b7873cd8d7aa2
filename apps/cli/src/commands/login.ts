import { setTimeout as wait } from "node:timers/promises";
import { ApiProblemError, InternEvoClient } from "@internevo/client";
import type { DeviceSignIn, DeviceToken } from "@internevo/contracts";
import { formatMoment, ProblemError } from "@internevo/domain";
import type { Command } from "commander";
import { assertUrl, beforeLogin, type Context } from "../context.ts";
import { addressOf, loginsFile, readLogins, writeLogins } from "../logins.ts";

/** By how much a device asks less often when it is told to (RFC 8628, section 3.5). */
const SLOWER_SECONDS = 5;

/** Where to log in, or out. @throws ProblemError `bad-request` when nothing says so */
function addressFor({ options, env }: Context): string {
  const url = options().url ?? env["INTERNEVO_URL"] ?? readLogins(env).current;
  if (url === null)
    throw new ProblemError("bad-request", "no installation is named", [
      {
        field: "--url",
        message: "is missing",
        remedy: "give for example --url https://internevo.example.org, or set INTERNEVO_URL",
      },
    ]);
  assertUrl(url);
  return addressOf(url);
}

/** Waits until the person has entered the code. @throws ProblemError `unauthorized` when the code has run out */
async function tokenFor(
  client: InternEvoClient,
  { deviceCode, expiresInSeconds, intervalSeconds }: DeviceSignIn,
  signal: AbortSignal,
): Promise<DeviceToken & { readonly token: string }> {
  const end = Date.now() + expiresInSeconds * 1000;
  let seconds = intervalSeconds;
  while (Date.now() < end) {
    // The provider says how often it may be asked.
    await wait(seconds * 1000, undefined, { signal });
    const answer = await client.deviceToken(deviceCode, { signal });
    if (answer.token !== null) return { ...answer, token: answer.token };
    if (answer.state === "slow-down") seconds += SLOWER_SECONDS;
  }
  throw new ProblemError("unauthorized", "nobody has entered the code in time", [
    { field: "code", message: "has run out", remedy: "run `internevo login` again" },
  ]);
}

export function addLogin(program: Command, context: Context): void {
  program
    .command("login")
    .description("sign in to an installation by its provider of identities, for the commands that follow")
    .action(async () => {
      const output = context.output();
      const address = addressFor(context);
      const client = new InternEvoClient({ baseUrl: address });
      const { provider } = await client.signIn({ signal: context.signal });
      if (provider === null)
        throw new ProblemError("unavailable", `${address} has no provider of identities`, [
          {
            field: "--url",
            value: address,
            message: "takes tokens alone",
            remedy: "ask its admin for a token, and give it as --token or INTERNEVO_TOKEN",
          },
        ]);
      const begun = await client.beginDeviceSignIn({ signal: context.signal });
      output.note(`Open ${begun.verificationUriComplete ?? begun.verificationUri} in a browser.`);
      output.note(`Sign in with ${provider.name}, and enter the code ${begun.userCode}`);
      const { token, expiresAt } = await tokenFor(client, begun, context.signal);
      const who = await new InternEvoClient({ baseUrl: address, token }).whoami({ signal: context.signal });
      const before = readLogins(context.env);
      const login = { token, expiresAt: expiresAt ?? "" };
      writeLogins(context.env, { current: address, logins: { ...before.logins, [address]: login } });
      if (output.json)
        output.document({ url: address, name: who.name, role: who.role, project: who.project, expiresAt });
      else {
        output.data(`${who.name} is logged in to ${address} as ${who.role}`);
        output.note(
          `Until ${formatMoment(login.expiresAt)}, or \`internevo logout\`. It is kept in ${loginsFile(context.env)}.`,
        );
        const first = await beforeLogin(context, address);
        if (first !== undefined)
          output.note(`${first} goes first: give --url ${address} to commands that mean this login.`);
      }
    });
}

export function addLogout(program: Command, context: Context): void {
  program
    .command("logout")
    .description("end what `internevo login` began")
    .action(async () => {
      const output = context.output();
      const address = addressFor(context);
      const before = readLogins(context.env);
      const login = before.logins[address];
      if (login === undefined)
        throw new ProblemError("not-found", `nobody is logged in to ${address}`, [
          { field: "--url", value: address, message: "has no login", remedy: "there is nothing to end" },
        ]);
      const { [address]: _ended, ...logins } = before.logins;
      writeLogins(context.env, { current: before.current === address ? null : before.current, logins });
      // What is kept here is gone whatever the API says; a token that it does not know any more is no fault.
      await new InternEvoClient({ baseUrl: address, token: login.token })
        .signOut({ signal: context.signal })
        .catch((error: unknown) => {
          if (error instanceof ApiProblemError && error.status === 401) return;
          output.note(`${address} was not told: ${(error as Error).message}. An admin can revoke the login.`);
        });
      if (output.json) output.document({ url: address });
      else output.data(`logged out of ${address}`);
    });
}
