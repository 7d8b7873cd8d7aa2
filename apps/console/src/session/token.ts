const KEY = "internevo.token";

/**
 * Takes a token out of `#token=…`, and out of the address bar and its history entry, where it would linger.
 */
export function takeTokenFromFragment(location: Location, history: History): string | undefined {
  const fragment = new URLSearchParams(location.hash.replace(/^#/, ""));
  const token = fragment.get("token")?.trim();
  if (!fragment.has("token")) return undefined;
  fragment.delete("token");
  const rest = fragment.toString();
  history.replaceState(
    history.state,
    "",
    location.pathname + location.search + (rest === "" ? "" : `#${rest}`),
  );
  return token === "" ? undefined : token;
}

/**
 * Takes the token of a link that opens in this page: only the fragment changes then, and nothing is loaded.
 * @param told the token, which is out of the address bar already
 * @returns ends the telling
 */
export function onTokenInFragment(told: (token: string) => void): () => void {
  const listener = (): void => {
    const token = takeTokenFromFragment(window.location, window.history);
    if (token !== undefined) told(token);
  };
  // The router reads the address at popstate, which comes first: capturing listeners are called before its own.
  const events = ["popstate", "hashchange"] as const;
  for (const event of events) window.addEventListener(event, listener, { capture: true });
  return () => {
    for (const event of events) window.removeEventListener(event, listener, { capture: true });
  };
}

/*
 * The token is the browser's, not a tab's: a link that opens in a new tab is signed in. Storage belongs to one address, so that another
 * installation has its own. It stays until somebody signs out, which signs all tabs out.
 */
export const storedToken = (): string | undefined => localStorage.getItem(KEY) ?? undefined;
export const storeToken = (token: string): void => localStorage.setItem(KEY, token);

/** @param only forgets no other token: one that was refused is not the one that other tabs work with */
export function forgetToken(only?: string): void {
  if (only === undefined || storedToken() === only) localStorage.removeItem(KEY);
}

/**
 * Tells what other tabs do: the token that they signed in with, or undefined where one signed out. @returns
 * ends the telling
 */
export function onTokenElsewhere(told: (token: string | undefined) => void): () => void {
  const listener = ({ key, storageArea, newValue }: StorageEvent): void => {
    if (storageArea !== localStorage || (key !== KEY && key !== null)) return;
    told(key === null ? undefined : (newValue ?? undefined));
  };
  window.addEventListener("storage", listener);
  return () => window.removeEventListener("storage", listener);
}

/**
 * The token that a link handed over, unless it would take a signed-in session's place and the person does not
 * want that. Anybody can make such a link, with a token of their own.
 * @param hasSession whether a cookie that no script sees signs the person in
 */
export function willingly(given: string | undefined, hasSession: boolean): string | undefined {
  const present = storedToken();
  if (given === undefined || present === given || (present === undefined && !hasSession)) return given;
  return window.confirm(
    "You are signed in. This link would sign you in with another token, and what you do then is done in its name. Use the link's token?",
  )
    ? given
    : undefined;
}
