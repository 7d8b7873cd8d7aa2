import type { DeadLetter } from "@internevo/contracts";
import { Button, Group, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Moment } from "../components/moment.tsx";
import { MoreButton } from "../components/more-button.tsx";
import { Page } from "../components/page.tsx";
import { Badge } from "../components/state-badge.tsx";
import { Empty, Listed } from "../components/states.tsx";
import { useDeadLetters } from "../data/queries.ts";
import { mayActAs, useSession } from "../session/session.tsx";

function Letter({ letter, mayAct }: { letter: DeadLetter; mayAct: boolean }) {
  const { client } = useSession();
  const queries = useQueryClient();
  const settle = useMutation({
    mutationFn: (how: "replay" | "discard") =>
      how === "replay" ? client.replayDeadLetter(letter.id) : client.discardDeadLetter(letter.id),
    onSettled: () => queries.invalidateQueries({ queryKey: ["dead-letters"] }),
  });
  const open = letter.resolution === null;
  return (
    <article className="dead-letter" data-letter={letter.id}>
      <Group justify="space-between" align="flex-start" gap="xs">
        <div>
          <strong>{letter.messageType}</strong>{" "}
          <span className="cell-note-inline">for {letter.consumer}</span>
          <div className="cell-note-inline">
            {letter.deliveries === 1 ? "1 delivery" : `${letter.deliveries} deliveries`} ·{" "}
            <Moment at={letter.createdAt} both />
          </div>
        </div>
        {open ? (
          mayAct && (
            <Group gap="xs">
              <Button
                size="compact-sm"
                loading={settle.isPending && settle.variables === "replay"}
                disabled={settle.isPending}
                onClick={() => settle.mutate("replay")}
                aria-label={`Replay ${letter.messageType}`}
              >
                Replay
              </Button>
              <Button
                size="compact-sm"
                variant="default"
                loading={settle.isPending && settle.variables === "discard"}
                disabled={settle.isPending}
                onClick={() => settle.mutate("discard")}
                aria-label={`Discard ${letter.messageType}`}
              >
                Discard
              </Button>
            </Group>
          )
        ) : (
          <Badge tone={letter.resolution === "replayed" ? "good" : "quiet"}>
            {letter.resolution === "replayed" ? "Replayed" : "Discarded"}
          </Badge>
        )}
      </Group>
      <Text size="sm" mt={6} className="text-bad breakable">
        {letter.error}
      </Text>
      {settle.isError && (
        <Text size="sm" className="text-bad" role="alert">
          {settle.error.message}
        </Text>
      )}
      <details className="as-table">
        <summary>The message</summary>
        <Text size="xs" c="dimmed">
          {letter.subject}
        </Text>
        <pre className="document" tabIndex={0}>
          {JSON.stringify(letter.payload, null, 2)}
        </pre>
      </details>
    </article>
  );
}

export function DeadLettersPage() {
  const mayAct = mayActAs(useSession(), "admin");
  const query = useDeadLetters();
  const letters = query.data?.pages.flatMap(({ items }) => items) ?? [];
  return (
    <Page
      title="Dead letters"
      lead="Messages that no consumer could take. Replay one when its cause is mended; discard it when it is no longer wanted."
    >
      <Listed
        query={query}
        what="dead letters"
        isEmpty={letters.length === 0}
        empty={
          <Empty title="No dead letters">
            <Text size="sm">Every message so far has found its consumer.</Text>
          </Empty>
        }
      >
        {letters.map((letter) => (
          <Letter key={letter.id} letter={letter} mayAct={mayAct} />
        ))}
        <MoreButton query={query} />
      </Listed>
    </Page>
  );
}
