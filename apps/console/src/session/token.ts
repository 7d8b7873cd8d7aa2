const KEY = "internevo.token";

/** Takes a token out of `#token=…`, and out of the address bar and its history entry, where it would linger. */
export function takeTokenFromFragment(location: Location, history: History): string | undefined {
  const fragment = new URLSearchParams(location.hash.replace(/^#/, ""));
  const token = fragment.get("token")?.trim();
  if (!fragment.has("token")) return undefined;
  fragment.delete("token");
  const rest = fragment.toString();
  history.replaceState(history.state, "", location.pathname + location.search + (rest === "" ? "" : `#${rest}`));
  return token === "" ? undefined : token;
}

/** The token lives as long as the tab. */
export const storedToken = (): string | undefined => sessionStorage.getItem(KEY) ?? undefined;
export const storeToken = (token: string): void => sessionStorage.setItem(KEY, token);
export const forgetToken = (): void => sessionStorage.removeItem(KEY);
