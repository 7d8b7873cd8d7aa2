import { Checkbox, Group, Text } from "@mantine/core";
import { useEffect, useRef, useState } from "react";
import { LOG_LINES, type LogLine } from "../../data/job-feed.ts";
import { formatClock, formatCounted, formatMoment, formatZone } from "../../text/format.ts";

/** Pixels from the end within which a reader counts as being at the end. */
const NEAR = 24;

export function LogTail({ lines, ended }: { lines: readonly LogLine[]; ended: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const [follow, setFollow] = useState(true);
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [follow, lines]);
  const scrolled = (): void => {
    const element = box.current;
    if (!element) return;
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR;
    if (atEnd !== follow) setFollow(atEnd);
  };
  if (lines.length === 0)
    return (
      <Text size="sm" c="dimmed">
        {ended ? "No line was written." : "No line yet."}
      </Text>
    );
  return (
    <>
      <div ref={box} className="log" role="log" aria-label="Log" tabIndex={0} onScroll={scrolled}>
        {lines.map(({ id, at, level, source, message }) => (
          <div key={id} className={`log-line log-${level}`}>
            <time dateTime={at} title={formatMoment(at)}>
              {formatClock(at)}
            </time>{" "}
            {level !== "info" && <b>{level} </b>}
            {source !== "" && <span className="log-source">{source} </span>}
            {message}
          </div>
        ))}
      </div>
      <Group justify="space-between" mt={6} gap="xs">
        <Checkbox
          size="xs"
          label="Follow the end"
          checked={follow}
          onChange={(event) => setFollow(event.currentTarget.checked)}
        />
        <Text size="xs" c="dimmed">
          {lines.length >= LOG_LINES ? "the last " : ""}
          {formatCounted(lines.length, "line")}, times in {formatZone(lines.at(-1)?.at ?? 0)}
        </Text>
      </Group>
    </>
  );
}
