import { API_PREFIX, type DeviceSignIn } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import * as oidc from "openid-client";
import { DeviceCodes } from "./device-codes.ts";
import { hasGroups, type Claims } from "./person.ts";
import type { SignInSettings } from "./settings.ts";

const TIMEOUT_SECONDS = 10;
/** How long what the provider says of itself is believed. */
const DISCOVERED_MILLISECONDS = 3_600_000;
/** How long it is not asked again when it did not say it, however many want to sign in. */
const FAILED_MILLISECONDS = 1000;

/** What a browser brings back from the provider must fit. */
export interface Expected {
  readonly state: string;
  readonly nonce: string;
  readonly codeVerifier: string;
}

/** A device's sign-in that has not ended, or the claims of who signed in. */
export type DeviceOutcome =
  { readonly state: "pending" | "slow-down" } | { readonly state: "signed-in"; readonly claims: Claims };

const DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code";

/** An answer of the provider that refuses. */
const isRefusal = (error: unknown): error is oidc.ResponseBodyError | oidc.AuthorizationResponseError =>
  error instanceof oidc.ResponseBodyError || error instanceof oidc.AuthorizationResponseError;

function clientAuthentication({ clientSecret, clientAuthentication: how }: SignInSettings): oidc.ClientAuth {
  if (clientSecret === undefined) return oidc.None();
  return how === "client_secret_post"
    ? oidc.ClientSecretPost(clientSecret)
    : oidc.ClientSecretBasic(clientSecret);
}

/** The provider of identities, by OpenID Connect. */
export class Provider {
  /** Of the codes that are handed out: {@link beginDevice} and {@link deviceOutcome} have the provider's own. */
  readonly deviceCodes: DeviceCodes;
  readonly #settings: SignInSettings;
  readonly #warn: (error: unknown, message: string) => void;
  /** Device codes that are asked about: the provider answers one question with tokens, and refuses the others. */
  readonly #asked = new Set<string>();
  #found: { readonly configuration: Promise<oidc.Configuration>; until: number } | undefined;

  constructor(settings: SignInSettings, warn: (error: unknown, message: string) => void) {
    this.deviceCodes = new DeviceCodes(settings);
    this.#settings = settings;
    this.#warn = warn;
  }

  /** Where the provider sends browsers back to. */
  get redirectUrl(): URL {
    return new URL(`${API_PREFIX}/sign-in/callback`, this.#settings.publicUrl);
  }

  /** Where a browser signs in. @throws ProblemError `unavailable` */
  async signInUrl({ state, nonce, codeVerifier }: Expected): Promise<URL> {
    return oidc.buildAuthorizationUrl(await this.#configuration(), {
      redirect_uri: this.redirectUrl.href,
      scope: this.#settings.scopes,
      code_challenge: await oidc.calculatePKCECodeChallenge(codeVerifier),
      code_challenge_method: "S256",
      state,
      nonce,
    });
  }

  /**
   * The claims of who comes back. @param query of the address that the browser was sent back to
   * @throws ProblemError `unauthorized` for what does not fit, or what the provider refuses; `unavailable`
   */
  async claimsOfCallback(query: string, expected: Expected): Promise<Claims> {
    const configuration = await this.#configuration();
    const came = this.redirectUrl;
    came.search = query;
    return this.#asking(async () => {
      const tokens = await oidc.authorizationCodeGrant(configuration, came, {
        expectedState: expected.state,
        expectedNonce: expected.nonce,
        pkceCodeVerifier: expected.codeVerifier,
        idTokenExpected: true,
      });
      return this.#wholeClaims(configuration, tokens);
    });
  }

  /** Begins the sign-in of a device without a browser. @throws ProblemError `unavailable` */
  async beginDevice(): Promise<DeviceSignIn> {
    const configuration = await this.#configuration();
    if (configuration.serverMetadata().device_authorization_endpoint === undefined)
      throw new ProblemError("unavailable", "the provider of identities signs in no devices", [
        {
          field: "INTERNEVO_API_OIDC_ISSUER",
          value: this.#settings.issuer.href,
          message: "has no device authorization endpoint",
          remedy: "let an admin enable the device flow at the provider, or use a token",
        },
      ]);
    const begun = await this.#asking(() =>
      oidc.initiateDeviceAuthorization(configuration, { scope: this.#settings.scopes }),
    );
    return {
      deviceCode: begun.device_code,
      userCode: begun.user_code,
      verificationUri: begun.verification_uri,
      verificationUriComplete: begun.verification_uri_complete ?? null,
      expiresInSeconds: begun.expires_in,
      intervalSeconds: begun.interval ?? 5,
    };
  }

  /**
   * Asks once whether the person has signed in; while that is not answered, who asks again is told to slow down.
   * @throws ProblemError `unauthorized`, `unavailable`
   */
  async deviceOutcome(deviceCode: string): Promise<DeviceOutcome> {
    if (this.#asked.has(deviceCode)) return { state: "slow-down" };
    this.#asked.add(deviceCode);
    try {
      return await this.#deviceOutcome(await this.#configuration(), deviceCode);
    } finally {
      this.#asked.delete(deviceCode);
    }
  }

  #deviceOutcome(configuration: oidc.Configuration, deviceCode: string): Promise<DeviceOutcome> {
    return this.#asking(async () => {
      try {
        const tokens = await oidc.genericGrantRequest(configuration, DEVICE_GRANT, {
          device_code: deviceCode,
        });
        return { state: "signed-in", claims: await this.#wholeClaims(configuration, tokens) };
      } catch (error) {
        if (error instanceof oidc.ResponseBodyError) {
          if (error.error === "authorization_pending") return { state: "pending" };
          if (error.error === "slow_down") return { state: "slow-down" };
        }
        throw error;
      }
    });
  }

  /** Where a browser signs out of the provider too; null: the provider has no such place, or does not answer. */
  async signOutUrl(): Promise<string | null> {
    try {
      const configuration = await this.#configuration();
      if (configuration.serverMetadata().end_session_endpoint === undefined) return null;
      const { publicUrl, clientId } = this.#settings;
      return oidc.buildEndSessionUrl(configuration, {
        post_logout_redirect_uri: publicUrl.href,
        client_id: clientId,
      }).href;
    } catch (error) {
      // Whoever signs out has done so here, whatever becomes of the provider.
      if (error instanceof ProblemError) return null;
      throw error;
    }
  }

  async #wholeClaims(
    configuration: oidc.Configuration,
    tokens: oidc.TokenEndpointResponse & oidc.TokenEndpointResponseHelpers,
  ): Promise<Claims> {
    const claims = tokens.claims();
    if (claims === undefined)
      throw new ProblemError("unauthorized", "the provider of identities has sent no ID token", [
        {
          field: "INTERNEVO_API_OIDC_SCOPES",
          value: this.#settings.scopes,
          message: "brings no ID token",
          remedy: "ask for the scope openid, and see that the provider grants it",
        },
      ]);
    const { userinfo_endpoint: endpoint } = configuration.serverMetadata();
    if (endpoint === undefined || (hasGroups(claims, this.#settings) && claims["email"] !== undefined))
      return claims;
    // Many providers keep groups and addresses out of the ID token.
    return { ...(await oidc.fetchUserInfo(configuration, tokens.access_token, claims.sub)), ...claims };
  }

  #configuration(): Promise<oidc.Configuration> {
    const { issuer, clientId } = this.#settings;
    if (this.#found && Date.now() < this.#found.until) return this.#found.configuration;
    const configuration = this.#asking(() =>
      oidc.discovery(issuer, clientId, undefined, clientAuthentication(this.#settings), {
        timeout: TIMEOUT_SECONDS,
        // Settings without TLS are for this machine alone.
        ...(issuer.protocol === "http:" ? { execute: [oidc.allowInsecureRequests] } : {}),
      }),
    );
    const found = { configuration, until: Date.now() + DISCOVERED_MILLISECONDS };
    this.#found = found;
    // Who comes a moment later tries again.
    configuration.catch(() => void (found.until = Date.now() + FAILED_MILLISECONDS));
    return configuration;
  }

  /** What goes wrong between this service and the provider, in words for the person. */
  async #asking<T>(ask: () => Promise<T>): Promise<T> {
    try {
      return await ask();
    } catch (error) {
      if (error instanceof ProblemError) throw error;
      this.#warn(error, "a sign-in went wrong at the provider of identities");
      if (isRefusal(error)) throw refusedByProvider(error);
      if (error instanceof oidc.ClientError && !isAway(error))
        throw new ProblemError(
          "unauthorized",
          "what came back from the provider of identities does not fit",
          [
            {
              field: "sign-in",
              message: "does not fit the sign-in that was begun here",
              remedy: "begin again on the sign-in page; if it happens again, ask an admin to look at the log",
            },
          ],
        );
      throw new ProblemError("unavailable", "the provider of identities does not answer; try again shortly", [
        {
          field: "INTERNEVO_API_OIDC_ISSUER",
          value: this.#settings.issuer.href,
          message: "does not answer as an OpenID Connect provider",
          remedy: "sessions and tokens that are there go on working; an admin finds the reason in the log",
        },
      ]);
    }
  }
}

const isAway = ({ code }: oidc.ClientError): boolean =>
  code === "OAUTH_TIMEOUT" || code === "OAUTH_RESPONSE_IS_NOT_CONFORM" || code === "OAUTH_ABORT";

function refusedByProvider(error: oidc.ResponseBodyError | oidc.AuthorizationResponseError): ProblemError {
  const said = error.error_description ?? error.error;
  return new ProblemError("unauthorized", `the provider of identities refused the sign-in: ${said}`, [
    {
      field: "sign-in",
      value: error.error,
      message: "was refused",
      remedy:
        "begin again; if it happens again, ask an admin to look at the client's settings at the provider",
    },
  ]);
}
