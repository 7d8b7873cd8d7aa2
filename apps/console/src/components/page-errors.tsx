import { Button } from "@mantine/core";
import type { ErrorComponentProps } from "@tanstack/react-router";
import { LinkTo } from "./links.tsx";
import { Page } from "./page.tsx";
import { Empty, Failed } from "./states.tsx";

export function NotFound() {
  return (
    <Page title="Page not found">
      <Empty title="There is nothing at this address">
        <LinkTo to="/jobs">Go to the jobs</LinkTo>
      </Empty>
    </Page>
  );
}

/** A fault of the console itself. */
export function PageError({ error, reset }: ErrorComponentProps) {
  return (
    <Page
      title="This page broke"
      actions={
        <Button variant="default" onClick={() => window.location.reload()}>
          Load it anew
        </Button>
      }
    >
      <Failed what="page" error={error instanceof Error ? error : new Error(String(error))} onRetry={reset} />
    </Page>
  );
}
