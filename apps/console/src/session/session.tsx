import { ApiProblemError, InternEvoClient } from "@internevo/client";
import type { Role } from "@internevo/contracts";
import { useQueryClient } from "@tanstack/react-query";
import { createContext, useCallback, useContext, useEffect, useMemo, useState, type ReactNode } from "react";
import { reportReachable, watchedFetch } from "../data/connection.ts";
import {
  forgetToken,
  onTokenElsewhere,
  onTokenInFragment,
  storedToken,
  storeToken,
  willingly,
} from "./token.ts";
import { SignIn } from "../pages/sign-in.tsx";

export interface Session {
  readonly client: InternEvoClient;
  readonly name: string;
  readonly role: Role;
  /** Where the role is held; null: in the whole installation. */
  readonly project: string | null;
  readonly signOut: (because?: string) => void;
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

const clientFor = (token: string): InternEvoClient =>
  new InternEvoClient({ baseUrl: location.origin, token, fetch: watchedFetch });

type Who = Pick<Session, "name" | "role" | "project">;

/** Asks the API whose token this is, until it answers. */
function useWhoami({
  client,
  token,
  onAnswer,
  onRefused,
  onAway,
}: {
  client: InternEvoClient | undefined;
  token: string | undefined;
  onAnswer: (answer: Who) => void;
  onRefused: (because: string) => void;
  onAway: (because: string) => void;
}): void {
  useEffect(() => {
    if (!client || token === undefined) return;
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async (): Promise<void> => {
      try {
        const answer = await client.whoami({ signal: abort.signal });
        storeToken(token);
        reportReachable();
        onAnswer(answer);
      } catch (error) {
        if (abort.signal.aborted) return;
        if (error instanceof ApiProblemError && error.status < 500 && error.status !== 429) {
          forgetToken(token);
          onRefused(
            error.status === 401
              ? "This token is not accepted. Check that it was copied whole, or ask for a new one."
              : error.message,
          );
          return;
        }
        onAway("The API cannot be reached. Trying again every two seconds.");
        timer = setTimeout(() => void ask(), 2000);
      }
    };
    void ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [client, token, onAnswer, onRefused, onAway]);
}

/**
 * Shows the pages to whoever has a token that the API accepts, and asks everybody else for one.
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
  const queries = useQueryClient();
  const [token, setToken] = useState(() => handedOver ?? storedToken());
  const [who, setWho] = useState<Who>();
  const [refusal, setRefusal] = useState<string>();
  const client = useMemo(() => (token === undefined ? undefined : clientFor(token)), [token]);

  const leave = useCallback(
    (because?: string) => {
      queries.clear();
      setWho(undefined);
      setToken(undefined);
      setRefusal(because);
    },
    [queries],
  );
  const signOut = useCallback(
    (because?: string) => {
      forgetToken();
      leave(because);
    },
    [leave],
  );

  /** Goes on with another token than that of this page. */
  const change = useCallback(
    (given: string) => {
      setRefusal(undefined);
      setToken((at) => {
        // What was read with another token may be another person's.
        if (at !== given) queries.clear();
        return given;
      });
    },
    [queries],
  );
  useEffect(
    () => onTokenElsewhere((given) => (given === undefined ? leave() : change(given))),
    [leave, change],
  );
  useEffect(
    () =>
      onTokenInFragment((given) => {
        const wanted = willingly(given, (question) => window.confirm(question));
        if (wanted !== undefined) change(wanted);
      }),
    [change],
  );

  const onAnswer = useCallback((answer: Who) => {
    setRefusal(undefined);
    setWho(answer);
  }, []);
  useWhoami({ client, token, onAnswer, onRefused: leave, onAway: setRefusal });

  const session = useMemo(
    () =>
      client && who ? { client, name: who.name, role: who.role, project: who.project, signOut } : undefined,
    [client, who, signOut],
  );
  if (!session) {
    const offer = (given: string): void => {
      setRefusal(undefined);
      setToken(given);
    };
    return (
      <SignIn checking={token !== undefined} refusal={refusal} onToken={offer} onStop={() => signOut()} />
    );
  }
  return <SessionContext value={session}>{children}</SessionContext>;
}
