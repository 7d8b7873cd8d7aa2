import { Alert } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { useConnection } from "../data/connection.ts";
import { useSession } from "../session/session.tsx";
import { formatClock, formatZone } from "../text/format.ts";

/** A loss shorter than this is mended before anybody could read about it. */
const GRACE_MILLISECONDS = 700;
const PROBE_MILLISECONDS = 1500;

/** Says that the API is away, asks for it until it is back, and then brings every page up to date. */
export function ConnectionBanner() {
  const { client } = useSession();
  const queries = useQueryClient();
  const { reachable, since } = useConnection();
  const [shown, setShown] = useState(false);
  const wasLost = useRef(false);

  useEffect(() => {
    if (reachable) {
      setShown(false);
      if (wasLost.current) void queries.invalidateQueries();
      wasLost.current = false;
      return;
    }
    wasLost.current = true;
    const grace = setTimeout(() => setShown(true), GRACE_MILLISECONDS);
    // The answer itself, whatever it says, is what `watchedFetch` takes for a connection.
    const probe = setInterval(() => void client.whoami().catch(() => undefined), PROBE_MILLISECONDS);
    return () => {
      clearTimeout(grace);
      clearInterval(probe);
    };
  }, [client, queries, reachable]);

  return (
    <div aria-live="polite">
      {shown && (
        <Alert
          color="yellow"
          variant="light"
          radius={0}
          className="connection-banner"
          title="Connection lost"
        >
          No answer since {formatClock(since)} {formatZone(since)}. Every page is brought up to date as soon
          as the API answers again.
        </Alert>
      )}
    </div>
  );
}
