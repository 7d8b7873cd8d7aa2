import { Code } from "@mantine/core";
import { Fragment } from "react";

/** Words of a program for people: what stands between backticks is code. */
export function Prose({ children }: { children: string }) {
  const parts = children.split("`");
  // A single backtick is a character like others.
  if (parts.length % 2 === 0) return <>{children}</>;
  return (
    <>
      {parts.map((part, index) =>
        index % 2 === 1 ? <Code key={index}>{part}</Code> : <Fragment key={index}>{part}</Fragment>,
      )}
    </>
  );
}
