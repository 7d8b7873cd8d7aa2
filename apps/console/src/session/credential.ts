import { InternEvoClient } from "@internevo/client";
import { watchedFetch } from "../data/connection.ts";

/** A token of this browser's storage, or the cookie of a session, which no script sees. */
export type Credential = { readonly kind: "token"; readonly token: string } | { readonly kind: "cookie" };
export const COOKIE: Credential = { kind: "cookie" };
export const ofToken = (token: string): Credential => ({ kind: "token", token });
export const tokenOf = (credential: Credential | undefined): string | undefined =>
  credential?.kind === "token" ? credential.token : undefined;

/** A client, and what tells it the session's CSRF token once that is known. */
export interface Connected {
  readonly client: InternEvoClient;
  readonly learn: (csrfToken: string | null) => void;
}

/** @param onEnded the session has ended meanwhile: elsewhere, or by its time */
export function connect(credential: Credential | undefined, onEnded: () => void): Connected {
  let csrf: string | undefined;
  const fetching: typeof fetch = async (input, init) => {
    const response = await watchedFetch(input, init);
    if (response.status === 401 && credential?.kind === "cookie") onEnded();
    return response;
  };
  return {
    client: new InternEvoClient({
      baseUrl: location.origin,
      token: tokenOf(credential),
      csrfToken: () => csrf,
      fetch: fetching,
    }),
    learn: (csrfToken) => {
      csrf = csrfToken ?? undefined;
    },
  };
}
