import { ApiConnectionError, ApiProblemError } from "@internevo/client";
import { Alert, Button, Paper, Skeleton, Stack, Text, Title } from "@mantine/core";
import type { ReactNode } from "react";
import { sentence } from "../text/format.ts";
import { ProblemDetails } from "./problem-details.tsx";
import { Prose } from "./prose.tsx";

/** Rows of a page that is still being loaded. */
export function Loading({ rows = 5, label }: { rows?: number; label: string }) {
  return (
    <Stack gap="xs" role="status" aria-label={`Loading ${label}`}>
      {Array.from({ length: rows }, (_, index) => (
        <Skeleton key={index} height={index === 0 ? 28 : 40} radius="sm" />
      ))}
    </Stack>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Paper withBorder p="xl" radius="md" className="empty">
      <Stack gap="sm" align="flex-start">
        <Title order={2} size="h3">
          {title}
        </Title>
        {children}
      </Stack>
    </Paper>
  );
}

function titleOf(what: string, error: Error): string {
  if (error instanceof ApiProblemError && error.status === 403) return `Your role doesn't show the ${what}`;
  return error instanceof ApiConnectionError
    ? "The API cannot be reached"
    : `The ${what} could not be loaded`;
}

/** What went wrong, and a way on. */
export function Failed({ what, error, onRetry }: { what: string; error: Error; onRetry?: () => void }) {
  if (error instanceof ApiProblemError && error.status === 404) {
    // Its remedy is for programs, and asking again would find nothing again.
    return (
      <Empty title={`There is no such ${what}`}>
        <Text size="sm">
          {sentence(error.message.charAt(0).toUpperCase() + error.message.slice(1))} The address may be cut,
          or of another installation.
        </Text>
      </Empty>
    );
  }
  const title = titleOf(what, error);
  return (
    <Alert color="red" title={title} role="alert">
      <Stack gap="sm" align="flex-start">
        <Text size="sm">
          <Prose>{error.message}</Prose>
        </Text>
        {error instanceof ApiProblemError && <ProblemDetails problem={error.problem} />}
        {onRetry && (
          <Button size="xs" variant="default" onClick={onRetry}>
            Try again
          </Button>
        )}
      </Stack>
    </Alert>
  );
}

/** A list that is loading, that could not be loaded, that has nothing, or that shows what it has. */
export function Listed({
  query,
  what,
  isEmpty,
  empty,
  children,
}: {
  query: { readonly isPending: boolean; readonly error: Error | null; readonly refetch: () => unknown };
  what: string;
  isEmpty: boolean;
  empty: ReactNode;
  children: ReactNode;
}) {
  if (query.isPending) return <Loading label={what} />;
  if (query.error && isEmpty)
    return <Failed what={what} error={query.error} onRetry={() => void query.refetch()} />;
  return isEmpty ? empty : children;
}
