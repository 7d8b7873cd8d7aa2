import type { InternEvoClient } from "@internevo/client";
import type { Role, SignIn as SignInOffer, TokenKind, Whoami } from "@internevo/contracts";
import { useQueryClient } from "@tanstack/react-query";
import { createContext, useCallback, useContext, useEffect, useMemo, useState, type ReactNode } from "react";
import { SignIn } from "../pages/sign-in.tsx";
import { useSignInOffer, useWhoami } from "./asking.ts";
import { connect, COOKIE, ofToken, tokenOf, type Credential } from "./credential.ts";
import { forgetToken, onTokenElsewhere, onTokenInFragment, storedToken, willingly } from "./token.ts";

export interface Session {
  readonly client: InternEvoClient;
  readonly name: string;
  readonly role: Role;
  /** Where the role is held; null: in the whole installation. */
  readonly project: string | null;
  readonly kind: TokenKind;
  /** Where the person may act; empty where a token is used. */
  readonly places: Whoami["places"];
  readonly signOut: () => void;
}

const SessionContext = createContext<Session | undefined>(undefined);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (!session) throw new Error("useSession outside of a session");
  return session;
}

const RANK: Readonly<Record<Role, number>> = { viewer: 0, operator: 1, admin: 2 };
export const mayActAs = (session: Session, role: Role): boolean => RANK[session.role] >= RANK[role];

/** Whether the role is held in the whole installation, and not in one project. */
export const isOfInstallation = ({ project }: Session): boolean => project === null;

/** What the page signs in with, whose it is, and what the sign-in page says meanwhile. */
function useSigningIn(handedOver: string | undefined) {
  const queries = useQueryClient();
  const [credential, setCredential] = useState<Credential | undefined>(() => {
    const stored = storedToken();
    return stored === undefined ? undefined : ofToken(handedOver ?? stored);
  });
  // A link's token waits until the API has said whether the browser has a session.
  const [offered, setOffered] = useState(() => (storedToken() === undefined ? handedOver : undefined));
  const [who, setWho] = useState<Whoami>();
  const [refusal, setRefusal] = useState<string>();
  const [offer, setOffer] = useState<SignInOffer>();
  const leave = useCallback(
    (because?: string) => {
      queries.clear();
      setWho(undefined);
      setOffered(undefined);
      setCredential(undefined);
      setRefusal(because);
    },
    [queries],
  );
  /** Goes on with another token than that of this page. */
  const change = useCallback(
    (given: string) => {
      setRefusal(undefined);
      setOffered(undefined);
      setCredential((at) => {
        // What was read with another token may be another person's.
        if (tokenOf(at) !== given) queries.clear();
        return ofToken(given);
      });
    },
    [queries],
  );
  const connected = useMemo(
    () => connect(credential, () => leave("Your session has ended. Sign in again.")),
    [credential, leave],
  );
  const onAnswer = useCallback((answer: Whoami) => {
    setRefusal(undefined);
    setWho(answer);
  }, []);
  const onOffer = useCallback(
    (given: SignInOffer) => {
      setOffer(given);
      const wanted = willingly(offered, given.isSignedIn);
      setOffered(undefined);
      if (wanted !== undefined) change(wanted);
      else if (given.isSignedIn) setCredential(COOKIE);
      else if (given.problem !== null) setRefusal(given.problem);
    },
    [offered, change],
  );
  const onLink = useCallback(
    (given: string) => {
      const hasSession = credential?.kind === "cookie";
      if (!hasSession && storedToken() === undefined) {
        leave();
        return setOffered(given);
      }
      const wanted = willingly(given, hasSession);
      if (wanted !== undefined) change(wanted);
    },
    [credential, leave, change],
  );
  useEffect(
    () => onTokenElsewhere((given) => (given === undefined ? leave() : change(given))),
    [leave, change],
  );
  useEffect(() => onTokenInFragment(onLink), [onLink]);
  useWhoami({ connected, credential, onAnswer, onRefused: leave, onAway: setRefusal });
  useSignInOffer({ connected, credential, onOffer, onAway: setRefusal });
  const checking = credential !== undefined || offered !== undefined;
  return { client: connected.client, credential, checking, who, refusal, offer, leave, change };
}

/**
 * Shows the pages to whoever has a session, or a token that the API accepts, and asks everybody else to sign in.
 * @param handedOver a token that the address brought; it is stored, which other tabs follow, once the API has
 * accepted it
 */
export function SessionProvider({
  handedOver,
  children,
}: {
  handedOver: string | undefined;
  children: ReactNode;
}) {
  const { client, credential, checking, who, refusal, offer, leave, change } = useSigningIn(handedOver);
  const [providerUrl, setProviderUrl] = useState<string>();
  const forget = useCallback(() => {
    forgetToken();
    leave();
  }, [leave]);
  const signOut = useCallback(() => {
    if (credential?.kind !== "cookie") return forget();
    client
      .signOut()
      .then((ended) => {
        setProviderUrl(ended.providerUrl ?? undefined);
        leave();
      })
      .catch((error: unknown) => leave(error instanceof Error ? error.message : String(error)));
  }, [client, credential, forget, leave]);
  const session = useMemo(() => {
    if (credential === undefined || !who) return undefined;
    const { name, role, project, kind, places } = who;
    return { client, name, role, project, kind, places, signOut };
  }, [client, credential, who, signOut]);
  if (session) return <SessionContext value={session}>{children}</SessionContext>;
  // Whoever has a session sees no sign-in page on the way to it.
  const isOnTheWay = credential === undefined ? offer === undefined : credential.kind === "cookie";
  if (isOnTheWay && refusal === undefined) return null;
  return (
    <SignIn
      checking={checking}
      refusal={refusal}
      provider={offer?.provider?.name}
      providerUrl={providerUrl}
      onToken={change}
      onStop={forget}
    />
  );
}
