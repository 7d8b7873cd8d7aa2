import { createHash } from "node:crypto";
import {
  DeviceSignInSchema,
  DeviceTokenRequestSchema,
  DeviceTokenSchema,
  SignInSchema,
  type DeviceToken,
} from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import { FairTurns } from "@internevo/service-kit";
import { signIn as storeSignIn, type NewSession, type SignedIn, type SignedInPerson } from "@internevo/store";
import type { FastifyReply, FastifyRequest } from "fastify";
import { randomNonce, randomPKCECodeVerifier, randomState } from "openid-client";
import { Type } from "typebox";
import { goneSignal } from "../http/gone.ts";
import type { ApiInstance } from "../http/instance.ts";
import { actionOf } from "../http/mutations.ts";
import { addressOf, type Limits, type RequestLimits } from "../http/limits.ts";
import type { RefusalAudit } from "../http/refusal-audit.ts";
import { clearCookie, readCookie, setCookie, setSessionCookie } from "../http/session-cookie.ts";
import { personOf } from "../sign-in/person.ts";
import type { Expected, Provider } from "../sign-in/provider.ts";
import type { SignInSettings } from "../sign-in/settings.ts";
import type { SessionRoutesOptions } from "./session.ts";
import { answers } from "./shapes.ts";

/** How long somebody may take at the provider. */
const SIGN_IN_SECONDS = 900;
/** Sign-ins hold so many connections of the database at most, and those of one person one. */
const STORED_SIGN_INS = { atOnce: 2, atOnceOfOne: 1, mostOfOne: 8, mostWaiting: 64 };
const PROBLEM_COOKIE = "internevo-sign-in-problem";
/**
 * Each sign-in that a browser has begun has its own: two tabs do not get into each other's way. What comes back may be
 * anybody's text, and no name of a cookie.
 */
const begunCookie = (state: string): string =>
  `internevo-sign-in-${createHash("sha256").update(state).digest("hex").slice(0, 12)}`;

interface Begun extends Expected {
  /** A path of the console. */
  readonly returnTo: string;
}

/** A path of the console itself: what looks like one and leads elsewhere, such as `//host`, is the first page. */
export function pathWithin(publicUrl: URL, path: string | undefined): string {
  if (path === undefined || !URL.canParse(path, publicUrl.href)) return "/";
  const url = new URL(path, publicUrl);
  // A path that begins with two slashes would be read as a host.
  if (url.origin !== publicUrl.origin || url.pathname.startsWith("//")) return "/";
  return url.pathname + url.search + url.hash;
}

const begunOf = (cookie: string | undefined): Begun | undefined => {
  try {
    return cookie === undefined
      ? undefined
      : (JSON.parse(Buffer.from(cookie, "base64url").toString()) as Begun);
  } catch {
    return undefined;
  }
};

export interface SignInRoutesOptions extends SessionRoutesOptions {
  /** Counts those whom the provider knows and who have no role, for the audit log. */
  readonly refusals: RefusalAudit;
  readonly limits: Pick<RequestLimits, "mayAskProvider">;
  readonly bounds: Pick<Limits, "providerQuestions">;
}

interface SignIns extends SignInRoutesOptions {
  /** Of sign-ins that are being stored. */
  readonly turns: FairTurns;
  /** Of questions to the provider, by address. */
  readonly questions: FairTurns;
}

/** The settings, and the provider. Whoever waits for its answer leaves the request's turn to others. */
function needed(
  { signIn, provider }: SessionRoutesOptions,
  request: FastifyRequest,
): { settings: SignInSettings; provider: Provider } {
  request.turn?.giveUp();
  if (signIn && provider) return { settings: signIn, provider };
  throw new ProblemError("not-found", "this installation has no provider of identities", [
    {
      field: "INTERNEVO_API_OIDC_ISSUER",
      message: "is not set",
      remedy: "use a token; an admin who wants sign-in sets the provider",
    },
  ]);
}

/**
 * Asks the provider what a request without a token has it asked, when it is its turn: few at once, whoever asks.
 * @throws ProblemError `rate-limited`, `unavailable` when too many wait; what the question throws
 */
const inTurn = <T>(
  { questions }: SignIns,
  request: FastifyRequest,
  reply: FastifyReply,
  ask: () => Promise<T>,
): Promise<T> => questions.run(addressOf(request), goneSignal(reply), ask);

/**
 * Stores a sign-in when it is its turn. @throws ProblemError `forbidden` for somebody whose groups give no role;
 * `rate-limited`, `unavailable` when too many wait
 */
async function admit(
  { database, turns, refusals }: SignIns,
  person: SignedInPerson,
  session: NewSession,
  reply: FastifyReply,
): Promise<SignedIn> {
  const who = JSON.stringify([person.issuer, person.subject]);
  const outcome = await turns.run(who, goneSignal(reply), () =>
    database.transaction((tx) => storeSignIn(tx, person, session)),
  );
  if (!("refusal" in outcome)) return outcome;
  await refusals.note(who, outcome.audit);
  throw outcome.refusal;
}

const notBegun = (): ProblemError =>
  new ProblemError("unauthorized", "this sign-in was not begun in this browser, or a while ago", [
    {
      field: "state",
      message: "is of no sign-in that waits here",
      remedy: "begin again on the sign-in page",
    },
  ]);

/** People sign in at the provider of identities: browsers by its pages, devices by a code. */
export function registerSignInRoutes(app: ApiInstance, options: SignInRoutesOptions): void {
  const tags = ["access"];
  app.get(
    "/sign-in",
    {
      config: { scope: "open" },
      schema: { tags, summary: "How people sign in", response: answers({ 200: SignInSchema }) },
    },
    async (request, reply) => {
      const { signIn } = options;
      const problem = signIn ? readCookie(request, PROBLEM_COOKIE, signIn.publicUrl) : undefined;
      if (signIn && problem !== undefined) clearCookie(reply, PROBLEM_COOKIE, signIn.publicUrl);
      return {
        provider: signIn ? { name: signIn.providerName } : null,
        isSignedIn: request.actor?.kind === "session",
        problem: problem ?? null,
      };
    },
  );
  const signIns: SignIns = {
    ...options,
    turns: new FairTurns(STORED_SIGN_INS),
    questions: new FairTurns(options.bounds.providerQuestions),
  };
  registerBrowserRoutes(app, signIns, tags);
  registerDeviceRoutes(app, signIns, tags);
}

/** Signs in whom the provider has sent back. @returns where in the console the browser goes on */
async function comeBack(options: SignIns, request: FastifyRequest, reply: FastifyReply): Promise<string> {
  const { settings, provider } = needed(options, request);
  const { publicUrl, sessionSeconds, idleSeconds } = settings;
  const url = new URL(request.url, publicUrl);
  const name = begunCookie(url.searchParams.get("state") ?? "");
  const begun = begunOf(readCookie(request, name, publicUrl));
  clearCookie(reply, name, publicUrl);
  if (begun === undefined) throw notBegun();
  if (!(await options.limits.mayAskProvider(request)))
    throw new ProblemError("rate-limited", "too many sign-ins from this address; try again in a minute");
  const claims = await inTurn(options, request, reply, () => provider.claimsOfCallback(url.search, begun));
  const person = personOf(claims, settings);
  const session: NewSession = {
    kind: "session",
    validForSeconds: sessionSeconds,
    idleSeconds,
    action: actionOf(request),
    traceId: request.trace.traceId,
  };
  const { secret } = await admit(options, person, session, reply);
  setSessionCookie(reply, secret, { publicUrl, seconds: sessionSeconds });
  return pathWithin(publicUrl, begun.returnTo);
}

function registerBrowserRoutes(app: ApiInstance, options: SignIns, tags: string[]): void {
  app.get(
    "/sign-in/begin",
    {
      config: { scope: "open" },
      schema: {
        tags,
        summary: "Send a browser to the provider of identities",
        querystring: Type.Object(
          {
            returnTo: Type.Optional(
              Type.String({ maxLength: 2000, description: "a path of the console to come back to" }),
            ),
          },
          { additionalProperties: false },
        ),
        response: answers({ 302: Type.Null() }),
      },
    },
    async (request, reply) => {
      const { settings, provider } = needed(options, request);
      const { publicUrl } = settings;
      const begun: Begun = {
        state: randomState(),
        nonce: randomNonce(),
        codeVerifier: randomPKCECodeVerifier(),
        returnTo: pathWithin(publicUrl, request.query.returnTo),
      };
      const url = await provider.signInUrl(begun);
      setCookie(reply, begunCookie(begun.state), Buffer.from(JSON.stringify(begun)).toString("base64url"), {
        publicUrl,
        seconds: SIGN_IN_SECONDS,
      });
      return reply.redirect(url.href);
    },
  );
  app.get(
    "/sign-in/callback",
    {
      config: { scope: "open" },
      schema: {
        tags,
        summary: "Where the provider of identities sends browsers back to",
        response: answers({ 302: Type.Null() }),
      },
    },
    async (request, reply) => {
      try {
        return await reply.redirect(await comeBack(options, request, reply));
      } catch (error) {
        const { publicUrl } = needed(options, request).settings;
        if (!(error instanceof ProblemError)) throw error;
        // A person looks at this, not a program: the sign-in page says what went wrong.
        setCookie(reply, PROBLEM_COOKIE, error.message, { publicUrl, seconds: 60 });
        request.log.warn({ code: error.code, detail: error.message }, "a sign-in was refused");
        return reply.redirect("/");
      }
    },
  );
}

function registerDeviceRoutes(app: ApiInstance, options: SignIns, tags: string[]): void {
  app.post(
    "/sign-in/device",
    {
      config: { scope: "open", isDeviceSignIn: true },
      schema: {
        tags,
        summary: "Begin the sign-in of a command line",
        description:
          "The person opens `verificationUri` in any browser and types `userCode` (RFC 8628). " +
          "Meanwhile ask `POST /sign-in/device/token` every `intervalSeconds`.",
        response: answers({ 200: DeviceSignInSchema }),
      },
    },
    async (request, reply) => {
      const { provider } = needed(options, request);
      const begun = await inTurn(options, request, reply, () => provider.beginDevice());
      const { deviceCode, expiresInSeconds } = begun;
      return { ...begun, deviceCode: provider.deviceCodes.signed(deviceCode, expiresInSeconds) };
    },
  );
  app.post(
    "/sign-in/device/token",
    {
      config: { scope: "open" },
      schema: {
        tags,
        summary: "Ask whether the person has signed in",
        description:
          "`token` comes once, and is stored nowhere. `slow-down`: wait 5 s longer from now on. A code that this " +
          "installation did not hand out, or that has run out, is a 401. Where an address asks too often, the answer " +
          "is `slow-down`, and the provider is not asked.",
        body: DeviceTokenRequestSchema,
        response: answers({ 200: DeviceTokenSchema }),
      },
    },
    async (request, reply): Promise<DeviceToken> => {
      const { settings, provider } = needed(options, request);
      const code = provider.deviceCodes.codeOf(request.body.deviceCode);
      // Whoever is told so asks less often, and goes on.
      if (!(await options.limits.mayAskProvider(request)))
        return { state: "slow-down", token: null, expiresAt: null };
      const outcome = await inTurn(options, request, reply, () => provider.deviceOutcome(code));
      if (outcome.state !== "signed-in") return { state: outcome.state, token: null, expiresAt: null };
      const session: NewSession = {
        kind: "login",
        validForSeconds: settings.loginSeconds,
        idleSeconds: null,
        action: actionOf(request),
        traceId: request.trace.traceId,
      };
      const person = personOf(outcome.claims, settings);
      const { secret, expiresAt } = await admit(options, person, session, reply);
      return { state: "signed-in", token: secret, expiresAt: expiresAt.toISOString() };
    },
  );
}
