import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Provider, type Configuration } from "oidc-provider";

/** A person whom the provider knows. */
export interface TestPerson {
  readonly email?: string;
  readonly emailVerified?: boolean;
  readonly preferredUsername?: string;
  readonly groups?: readonly string[];
}

/** A real OpenID Connect provider on a port of its own. */
export interface IdentityProvider {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** Whom it knows, by subject; a test may change what they are. */
  readonly people: Map<string, TestPerson>;
  /** Who signs in from now on, without a password. */
  person: string;
  /** Requests for tokens that came, whatever they were answered, and how many of them at most were there at once. */
  readonly tokenRequests: { count: number; mostAtOnce: number };
  /** Called for each before it is answered. Default: it is answered at once. */
  beforeToken: () => Promise<void>;
  /** A person with the browser whose cookies these are enters a device's code, and says yes. */
  enterDeviceCode(userCode: string, browser?: TestBrowser): Promise<string>;
  stop(): Promise<void>;
}

/** Follows redirects with cookies, as a browser does, and runs no script. */
export class TestBrowser {
  /** By host; ports share them. */
  readonly cookies = new Map<string, string>();

  /** One request, whose redirect is not followed. */
  async once(url: string | URL, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    const cookie = [...this.cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    if (cookie !== "") headers.set("cookie", cookie);
    const response = await fetch(url, { ...init, headers, redirect: "manual" });
    for (const line of response.headers.getSetCookie()) {
      const [pair = "", ...attributes] = line.split(";").map((part) => part.trim());
      const at = pair.indexOf("=");
      const [name, value] = [pair.slice(0, at), pair.slice(at + 1)];
      const hasEnded = attributes.some((text) => /^(max-age=0$|expires=Thu, 01 Jan 1970)/i.test(text));
      if (value === "" || hasEnded) this.cookies.delete(name);
      else this.cookies.set(name, value);
    }
    return response;
  }

  /** Goes where it is sent. @param stop whether an address is looked at no more @returns the last answer, and its address */
  async follow(
    url: string | URL,
    init: RequestInit = {},
    stop: (url: URL) => boolean = () => false,
  ): Promise<{ readonly url: URL; readonly response: Response }> {
    let at = new URL(url);
    let send = init;
    for (let hop = 0; hop < 20; hop++) {
      const response = await this.once(at, send);
      const location = response.headers.get("location");
      if (location === null) return { url: at, response };
      at = new URL(location, at);
      send = {};
      if (stop(at)) return { url: at, response };
    }
    throw new Error(`${url.toString()} leads nowhere`);
  }
}

const CLIENT_ID = "internevo";
const CLIENT_SECRET = "a-secret-of-the-test-client";
const COOKIE_KEY = "a-key-of-the-test-provider";

/** The inputs of the form that a page has. */
function formOf(page: string): { readonly action: string; readonly inputs: URLSearchParams } | undefined {
  const action = /<form[^>]*action="([^"]+)"/.exec(page)?.[1];
  if (action === undefined) return undefined;
  const inputs = new URLSearchParams();
  for (const [tag] of page.matchAll(/<input[^>]*>/g)) {
    const name = /name="([^"]*)"/.exec(tag)?.[1];
    if (name !== undefined) inputs.set(name, /value="([^"]*)"/.exec(tag)?.[1] ?? "");
  }
  return { action, inputs };
}

const configurationOf = (
  redirectUri: string,
  people: ReadonlyMap<string, TestPerson>,
  secret: string | undefined,
): Configuration => ({
  clients: [
    {
      client_id: CLIENT_ID,
      ...(secret === undefined
        ? { token_endpoint_auth_method: "none" as const }
        : { client_secret: secret, token_endpoint_auth_method: "client_secret_basic" as const }),
      redirect_uris: [redirectUri],
      post_logout_redirect_uris: [new URL("/", redirectUri).href],
      grant_types: ["authorization_code", "urn:ietf:params:oauth:grant-type:device_code"],
      response_types: ["code"],
    },
  ],
  cookies: { keys: [COOKIE_KEY] },
  pkce: { required: () => true },
  // As most providers do: groups come from the userinfo endpoint.
  claims: { openid: ["sub"], profile: ["preferred_username", "groups"], email: ["email", "email_verified"] },
  features: { devInteractions: { enabled: false }, deviceFlow: { enabled: true } },
  interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (_ctx, subject) => {
    const person = people.get(subject);
    if (!person) return undefined;
    const { email, emailVerified = true, preferredUsername, groups } = person;
    return {
      accountId: subject,
      claims: () => ({
        sub: subject,
        ...(email === undefined ? {} : { email, email_verified: emailVerified }),
        ...(preferredUsername === undefined ? {} : { preferred_username: preferredUsername }),
        ...(groups === undefined ? {} : { groups: [...groups] }),
      }),
    };
  },
  // Nobody is asked whether the client may know them.
  async loadExistingGrant(ctx) {
    const { session, client, params } = ctx.oidc;
    if (!session?.accountId || !client) return undefined;
    const grant = new ctx.oidc.provider.Grant({ accountId: session.accountId, clientId: client.clientId });
    const scope = params?.["scope"];
    grant.addOIDCScope(typeof scope === "string" ? scope : "openid");
    await grant.save();
    return grant;
  },
});

/**
 * Starts a provider. @param publicUrl of the installation that people sign in to. @param client public: it has no
 * secret
 */
export async function startIdentityProvider(
  publicUrl: string,
  client: "confidential" | "public" = "confidential",
): Promise<IdentityProvider> {
  const people = new Map<string, TestPerson>();
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const secret = client === "public" ? undefined : CLIENT_SECRET;
  const provider = new Provider(
    issuer,
    configurationOf(new URL("/api/v1/sign-in/callback", publicUrl).href, people, secret),
  );
  const callback = provider.callback();
  const made: IdentityProvider = {
    issuer,
    clientId: CLIENT_ID,
    clientSecret: CLIENT_SECRET,
    people,
    person: "",
    tokenRequests: { count: 0, mostAtOnce: 0 },
    beforeToken: () => Promise.resolve(),
    async enterDeviceCode(userCode, browser = new TestBrowser()) {
      let { url, response } = await browser.follow(`${issuer}/device?user_code=${userCode}`);
      for (let page = 0; page < 5; page++) {
        const text = await response.text();
        const form = formOf(text);
        if (form === undefined) return text;
        // The second page asks whether the code is the one that the device shows.
        if (text.includes("deviceConfirmForm")) form.inputs.set("confirm", "yes");
        ({ url, response } = await browser.follow(new URL(form.action, url), {
          method: "POST",
          body: form.inputs,
        }));
      }
      throw new Error("the device's pages do not end");
    },
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  let tokensAtOnce = 0;
  const answerToken: typeof callback = async (request, response) => {
    const { tokenRequests } = made;
    tokenRequests.count += 1;
    tokensAtOnce += 1;
    tokenRequests.mostAtOnce = Math.max(tokenRequests.mostAtOnce, tokensAtOnce);
    response.once("close", () => (tokensAtOnce -= 1));
    await made.beforeToken();
    return callback(request, response);
  };
  server.on("request", (request, response) => {
    if (request.url === "/token") return void answerToken(request, response);
    if (!request.url?.startsWith("/interaction/")) return void callback(request, response);
    provider
      .interactionFinished(request, response, { login: { accountId: made.person } })
      .catch((error: unknown) => response.writeHead(500).end(String(error)));
  });
  return made;
}

/**
 * What the API is set to, so that people sign in there. @param roles what groups give, as
 * `INTERNEVO_API_OIDC_ROLES`
 */
export const signInSettingsOf = (
  provider: IdentityProvider,
  publicUrl: string,
  roles: string,
): Record<string, string> => ({
  INTERNEVO_API_PORT: new URL(publicUrl).port,
  INTERNEVO_API_PUBLIC_URL: publicUrl,
  INTERNEVO_API_OIDC_ISSUER: provider.issuer,
  INTERNEVO_API_OIDC_NAME: "Example",
  INTERNEVO_API_OIDC_CLIENT_ID: provider.clientId,
  INTERNEVO_API_OIDC_CLIENT_SECRET: provider.clientSecret,
  INTERNEVO_API_OIDC_ROLES: roles,
});
