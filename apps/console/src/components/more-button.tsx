import { Button } from "@mantine/core";

/** Loads the next page of a list; nothing where it has been shown whole. */
export function MoreButton({
  query,
  children = "Show older ones",
}: {
  query: {
    readonly hasNextPage: boolean;
    readonly isFetchingNextPage: boolean;
    readonly fetchNextPage: () => unknown;
  };
  children?: string;
}) {
  if (!query.hasNextPage) return null;
  return (
    <Button variant="default" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
      {children}
    </Button>
  );
}
