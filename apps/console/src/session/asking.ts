import { ApiProblemError } from "@internevo/client";
import type { SignIn, Whoami } from "@internevo/contracts";
import { useEffect } from "react";
import { reportReachable } from "../data/connection.ts";
import { tokenOf, type Connected, type Credential } from "./credential.ts";
import { forgetToken, storeToken } from "./token.ts";

const RETRY_MILLISECONDS = 2000;
const AWAY = "The API cannot be reached. Trying again every two seconds.";

/** Asks, and again every two seconds while the API is away, until the effect ends. */
function asking(
  ask: (signal: AbortSignal) => Promise<void>,
  onRefused: (error: ApiProblemError) => void,
  onAway: (because: string) => void,
): () => void {
  const abort = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const attempt = async (): Promise<void> => {
    try {
      await ask(abort.signal);
    } catch (error) {
      if (abort.signal.aborted) return;
      if (error instanceof ApiProblemError && error.status < 500 && error.status !== 429)
        return onRefused(error);
      onAway(AWAY);
      timer = setTimeout(() => void attempt(), RETRY_MILLISECONDS);
    }
  };
  void attempt();
  return () => {
    abort.abort();
    clearTimeout(timer);
  };
}

/** Asks the API whose token or session this is, until it answers. */
export function useWhoami({
  connected,
  credential,
  onAnswer,
  onRefused,
  onAway,
}: {
  connected: Connected;
  credential: Credential | undefined;
  onAnswer: (answer: Whoami) => void;
  onRefused: (because: string) => void;
  onAway: (because: string) => void;
}): void {
  useEffect(() => {
    if (credential === undefined) return;
    const token = tokenOf(credential);
    const { client, learn } = connected;
    return asking(
      async (signal) => {
        const answer = await client.whoami({ signal });
        if (token !== undefined) storeToken(token);
        learn(answer.csrfToken);
        reportReachable();
        onAnswer(answer);
      },
      (error) => {
        // What tells that a session has ended is the connection.
        if (token === undefined && error.status === 401) return;
        if (token !== undefined) forgetToken(token);
        onRefused(
          error.status === 401
            ? "This token is not accepted. Check that it was copied whole, or ask for a new one."
            : error.message,
        );
      },
      onAway,
    );
  }, [connected, credential, onAnswer, onRefused, onAway]);
}

/** Asks how people sign in here, where nobody has, until the API answers. */
export function useSignInOffer({
  connected: { client },
  credential,
  onOffer,
  onAway,
}: {
  connected: Connected;
  credential: Credential | undefined;
  onOffer: (offer: SignIn) => void;
  onAway: (because: string) => void;
}): void {
  useEffect(() => {
    if (credential !== undefined) return;
    return asking(
      async (signal) => onOffer(await client.signIn({ signal })),
      (error) => onAway(error.message),
      onAway,
    );
  }, [client, credential, onOffer, onAway]);
}
