import { InternEvoClient } from "@internevo/client";
import { ProblemError } from "@internevo/domain";
import { addressOf, readLogins } from "./logins.ts";
import { findStack } from "./local-stack-address.ts";
import type { ExitCode } from "./exit-codes.ts";
import type { Output } from "./output.ts";

/** Options of every command. */
export interface GlobalOptions {
  readonly url?: string;
  readonly token?: string;
  readonly dataDirectory?: string;
  readonly json?: boolean;
}

/** What a command needs of its surroundings. */
export interface Context {
  /** Made when the options are known. */
  output(): Output;
  /**
   * A client of the API that the options, the environment or the local stack name. @throws ProblemError
   * `unavailable` when there is none.
   */
  client(): Promise<InternEvoClient>;
  readonly options: () => GlobalOptions;
  readonly env: NodeJS.ProcessEnv;
  /** Aborts at Ctrl-C and SIGTERM. */
  readonly signal: AbortSignal;
  setExitCode(code: ExitCode): void;
  /**
   * Runs work that does not give way: a signal ends the program at once meanwhile, for nobody could answer
   * it. Nothing may be half done then.
   */
  computing<T>(work: () => T): T;
}

export const DEFAULT_DATA_DIRECTORY = ".internevo";

export const dataDirectoryOf = (context: Pick<Context, "options" | "env">): string =>
  context.options().dataDirectory ?? context.env["INTERNEVO_DATA_DIRECTORY"] ?? DEFAULT_DATA_DIRECTORY;

/** @throws ProblemError `bad-request` for what is no http address */
export const assertUrl = (url: string): void => {
  if (URL.canParse(url) && /^https?:$/.test(new URL(url).protocol)) return;
  throw new ProblemError("bad-request", `${url} is not the URL of an API`, [
    {
      field: "--url",
      value: url,
      message: "is not an http or https URL",
      remedy: "give for example http://127.0.0.1:8080",
    },
  ]);
};

/** It becomes a header's value. */
const assertToken = (token: string | undefined): void => {
  if (token === undefined || /^[\x21-\x7e]+$/.test(token)) return;
  throw new ProblemError("unauthorized", "the token is not one", [
    {
      field: "--token",
      message: "is empty, or has characters that no token has",
      remedy: "give it as the API's administrator gave it, without spaces and line ends",
    },
  ]);
};

/** Scheme, host and port of an address; the address itself where it is none. */
const originOf = (url: string): string => (URL.canParse(url) ? new URL(url).origin : url);

/** Whether INTERNEVO_TOKEN is kept back: it belongs to INTERNEVO_URL, and `--url` names another API. */
function keepsToken({ options, env }: Pick<Context, "options" | "env">): boolean {
  const { url, token } = options();
  const own = env["INTERNEVO_URL"];
  if (url === undefined || token !== undefined || !own || !env["INTERNEVO_TOKEN"]) return false;
  return originOf(url) !== originOf(own);
}

/** Where the API is: options first, then the environment, then the local stack, then where somebody logged in. */
export async function connect(context: Pick<Context, "options" | "env">): Promise<InternEvoClient> {
  const given = context.options().url ?? context.env["INTERNEVO_URL"];
  if (given !== undefined) assertUrl(given);
  const url = given === undefined ? undefined : addressOf(given);
  const keeps = keepsToken(context);
  const token = context.options().token ?? (keeps ? undefined : context.env["INTERNEVO_TOKEN"]);
  assertToken(token);
  if (url !== undefined && token !== undefined) return new InternEvoClient({ baseUrl: url, token });
  const directory = dataDirectoryOf(context);
  const stack = await findStack(directory);
  if (stack !== undefined && (url === undefined || url === stack.apiUrl))
    return new InternEvoClient({ baseUrl: stack.apiUrl, token: token ?? stack.token });
  const { current, logins } = readLogins(context.env);
  const at = url ?? current;
  const login = at === null ? undefined : logins[at];
  if (at !== null && login !== undefined)
    return new InternEvoClient({ baseUrl: at, token: token ?? login.token });
  if (url !== undefined)
    throw new ProblemError("unauthorized", "no token is given", [
      {
        field: "--token",
        message: keeps
          ? `is missing: the token of INTERNEVO_TOKEN belongs to INTERNEVO_URL (${context.env["INTERNEVO_URL"]}), and is not sent to ${url}`
          : "is missing",
        remedy: keeps
          ? "give --token, log in there with `internevo login`, or unset INTERNEVO_URL"
          : "log in with `internevo login`, give --token, or set INTERNEVO_TOKEN",
      },
    ]);
  throw new ProblemError("unavailable", `no API is given, and no local stack runs in ${directory}`, [
    {
      field: "--url",
      message: "is missing",
      remedy:
        "start a local stack with `internevo up`, log in with `internevo login`, or give --url and --token",
    },
  ]);
}

/**
 * What commands without `--url` use before a login to an address, in words; undefined where they use the login.
 * The order is that of {@link connect}.
 */
export async function beforeLogin(
  context: Pick<Context, "options" | "env">,
  address: string,
): Promise<string | undefined> {
  const named = context.env["INTERNEVO_URL"];
  if (named !== undefined) return addressOf(named) === address ? undefined : `INTERNEVO_URL (${named})`;
  const directory = dataDirectoryOf(context);
  const stack = await findStack(directory);
  return stack === undefined || stack.apiUrl === address ? undefined : `The local stack in ${directory}`;
}
