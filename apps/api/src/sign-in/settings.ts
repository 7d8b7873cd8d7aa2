import { ROLES, type Place, type Role } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { Type, type Static, type TObject } from "typebox";

/** Settings of sign-in by OpenID Connect; see docs/how-to/sign-in.md. */
export const signInConfig = {
  INTERNEVO_API_PUBLIC_URL: Type.Optional(
    Type.String({
      pattern: "^https?://",
      description: "where browsers reach the console and the API; needed for sign-in",
    }),
  ),
  INTERNEVO_API_OIDC_ISSUER: Type.Optional(
    Type.String({
      pattern: "^https?://",
      description: "URL of the OpenID Connect provider; without it tokens are the only way in",
    }),
  ),
  INTERNEVO_API_OIDC_NAME: Type.String({
    default: "single sign-on",
    minLength: 1,
    maxLength: 60,
    description: "what the sign-in page calls the provider",
  }),
  INTERNEVO_API_OIDC_CLIENT_ID: Type.Optional(Type.String({ minLength: 1 })),
  INTERNEVO_API_OIDC_CLIENT_SECRET: Type.Optional(
    Type.String({ minLength: 1, description: "absent: a public client, protected by PKCE alone" }),
  ),
  INTERNEVO_API_OIDC_CLIENT_SECRET_FILE: Type.Optional(
    Type.String({ minLength: 1, description: "a file that has the secret, in place of the secret" }),
  ),
  INTERNEVO_API_OIDC_CLIENT_AUTHENTICATION: Type.Enum(["client_secret_basic", "client_secret_post"], {
    default: "client_secret_basic",
    description: "how the secret is shown to the provider",
  }),
  INTERNEVO_API_OIDC_SCOPES: Type.String({
    default: "openid profile email",
    pattern: "(^| )openid( |$)",
    description: "what is asked of the provider; add the one that gives groups, if it needs one",
  }),
  INTERNEVO_API_OIDC_GROUPS_CLAIM: Type.String({
    default: "groups",
    minLength: 1,
    description: "the claim that has the person's groups; dots lead into objects",
  }),
  INTERNEVO_API_OIDC_ROLES: Type.String({
    default: "",
    description:
      "what groups give, separated by commas: GROUP=ROLE in the whole installation, GROUP=PROJECT:ROLE in a project",
  }),
  INTERNEVO_API_OIDC_DEFAULT_ROLE: Type.Optional(
    Type.String({
      minLength: 1,
      description:
        "ROLE or PROJECT:ROLE of everybody whom the provider knows; absent: who has no such group is refused",
    }),
  ),
  INTERNEVO_API_OIDC_SESSION_HOURS: Type.Integer({
    default: 168,
    minimum: 1,
    maximum: 8760,
    description: "after which a browser's session ends",
  }),
  INTERNEVO_API_OIDC_IDLE_HOURS: Type.Integer({
    default: 24,
    minimum: 1,
    maximum: 8760,
    description: "without a request, after which a browser's session ends",
  }),
  INTERNEVO_API_OIDC_LOGIN_DAYS: Type.Integer({
    default: 30,
    minimum: 1,
    maximum: 3650,
    description: "after which a command line's login ends",
  }),
};
export type SignInConfig = Static<TObject<typeof signInConfig>>;

/** What is needed to sign people in. */
export interface SignInSettings {
  /** Of the console and the API, without a path. */
  readonly publicUrl: URL;
  readonly issuer: URL;
  readonly providerName: string;
  readonly clientId: string;
  /** Undefined: a public client. */
  readonly clientSecret: string | undefined;
  readonly clientAuthentication: SignInConfig["INTERNEVO_API_OIDC_CLIENT_AUTHENTICATION"];
  readonly scopes: string;
  readonly groupsClaim: string;
  readonly placesOfGroup: ReadonlyMap<string, readonly Place[]>;
  readonly placeOfEverybody: Place | undefined;
  readonly sessionSeconds: number;
  readonly idleSeconds: number;
  readonly loginSeconds: number;
}

const wrong = (field: keyof SignInConfig, value: unknown, message: string, remedy: string): ProblemError =>
  new ProblemError("bad-request", `${field} ${message}`, [{ field, value, message, remedy }]);

const isRole = (text: string): text is Role => (ROLES as readonly string[]).includes(text);

/** @throws ProblemError for what is neither `ROLE` nor `PROJECT:ROLE` */
function placeOf(text: string, field: keyof SignInConfig): Place {
  const at = text.lastIndexOf(":");
  const [project, role] = at < 0 ? [null, text] : [text.slice(0, at), text.slice(at + 1)];
  if (!isRole(role) || project === "")
    throw wrong(
      field,
      text,
      "is neither ROLE nor PROJECT:ROLE",
      `a role is ${ROLES.join(", ")}; write for example operator or nlp:operator`,
    );
  return { role, project };
}

function placesOfGroups(text: string): ReadonlyMap<string, readonly Place[]> {
  const field = "INTERNEVO_API_OIDC_ROLES";
  const places = new Map<string, Place[]>();
  for (const entry of text.split(",").map((each) => each.trim())) {
    if (entry === "") continue;
    const at = entry.lastIndexOf("=");
    if (at <= 0)
      throw wrong(field, entry, "has an entry without a group", "write for example ml-team=nlp:operator");
    const group = entry.slice(0, at).trim();
    places.set(group, [...(places.get(group) ?? []), placeOf(entry.slice(at + 1).trim(), field)]);
  }
  return places;
}

const isOfThisMachine = ({ hostname }: URL): boolean =>
  hostname === "localhost" || hostname === "[::1]" || (isIP(hostname) === 4 && hostname.startsWith("127."));

/** @throws ProblemError for one without TLS on another machine: whoever is between could sign in as anybody */
function secureUrl(text: string, field: keyof SignInConfig): URL {
  if (!URL.canParse(text))
    throw wrong(field, text, "is not a URL", "give for example https://id.example.org");
  const url = new URL(text);
  if (url.protocol !== "https:" && !isOfThisMachine(url))
    throw wrong(field, text, "is not https", "put TLS in front of it; http is for this machine alone");
  return url;
}

function secretOf(config: SignInConfig): string | undefined {
  const { INTERNEVO_API_OIDC_CLIENT_SECRET: secret, INTERNEVO_API_OIDC_CLIENT_SECRET_FILE: file } = config;
  if (file === undefined) return secret;
  const field = "INTERNEVO_API_OIDC_CLIENT_SECRET_FILE";
  if (secret !== undefined)
    throw wrong(field, file, "is given beside the secret", "give the secret, or the file that has it");
  try {
    return readFileSync(file, "utf8").trim();
  } catch (error) {
    throw wrong(field, file, `cannot be read: ${(error as Error).message}`, "let the service's user read it");
  }
}

const needed = <K extends keyof SignInConfig>(
  config: SignInConfig,
  field: K,
): NonNullable<SignInConfig[K]> => {
  const value = config[field];
  if (value !== undefined) return value;
  throw wrong(field, undefined, "is missing", "sign-in needs it, because INTERNEVO_API_OIDC_ISSUER is set");
};

/**
 * What is set of sign-in; undefined when no provider is.
 * @throws ProblemError `bad-request` for settings that are missing, wrong or at odds, by name and remedy
 */
export function signInSettings(config: SignInConfig): SignInSettings | undefined {
  const { INTERNEVO_API_OIDC_ISSUER: issuer, INTERNEVO_API_OIDC_DEFAULT_ROLE: everybody } = config;
  if (issuer === undefined) {
    if (config.INTERNEVO_API_OIDC_CLIENT_ID === undefined) return undefined;
    const remedy = "give the provider's URL, or take the client id away";
    throw wrong("INTERNEVO_API_OIDC_ISSUER", undefined, "is missing beside a client id", remedy);
  }
  const placesOfGroup = placesOfGroups(config.INTERNEVO_API_OIDC_ROLES);
  const placeOfEverybody =
    everybody === undefined ? undefined : placeOf(everybody, "INTERNEVO_API_OIDC_DEFAULT_ROLE");
  if (placesOfGroup.size === 0 && placeOfEverybody === undefined)
    throw wrong(
      "INTERNEVO_API_OIDC_ROLES",
      config.INTERNEVO_API_OIDC_ROLES,
      "gives nobody a role",
      "write for example ml-admins=admin,ml-team=operator, or set INTERNEVO_API_OIDC_DEFAULT_ROLE",
    );
  const publicField = "INTERNEVO_API_PUBLIC_URL";
  const publicUrl = secureUrl(needed(config, publicField), publicField);
  if (publicUrl.pathname !== "/" || publicUrl.search !== "" || publicUrl.hash !== "")
    throw wrong(publicField, publicUrl.href, "has a path", `give ${publicUrl.origin}`);
  return {
    publicUrl,
    issuer: secureUrl(issuer, "INTERNEVO_API_OIDC_ISSUER"),
    providerName: config.INTERNEVO_API_OIDC_NAME,
    clientId: needed(config, "INTERNEVO_API_OIDC_CLIENT_ID"),
    clientSecret: secretOf(config),
    clientAuthentication: config.INTERNEVO_API_OIDC_CLIENT_AUTHENTICATION,
    scopes: config.INTERNEVO_API_OIDC_SCOPES,
    groupsClaim: config.INTERNEVO_API_OIDC_GROUPS_CLAIM,
    placesOfGroup,
    placeOfEverybody,
    sessionSeconds: config.INTERNEVO_API_OIDC_SESSION_HOURS * 3600,
    idleSeconds: config.INTERNEVO_API_OIDC_IDLE_HOURS * 3600,
    loginSeconds: config.INTERNEVO_API_OIDC_LOGIN_DAYS * 86_400,
  };
}
