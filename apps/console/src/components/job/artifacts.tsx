import type { Artifact, ArtifactKind } from "@internevo/contracts";
import { formatBytes, removalWords, RETENTION_WORDS } from "@internevo/domain";
import { Alert, Button, Code, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { download } from "../../data/download.ts";
import { useArtifacts } from "../../data/queries.ts";
import { useSession } from "../../session/session.tsx";
import { sentence } from "../../text/format.ts";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../data-table.tsx";
import { Moment } from "../moment.tsx";
import { Failed, Loading } from "../states.tsx";

const KIND_WORDS: Readonly<Record<ArtifactKind, string>> = {
  job: "Job file",
  metrics: "Metrics",
  log: "Log",
  timeline: "Timeline",
  checkpoint: "Checkpoint",
  export: "Export",
};

/** A browser holds a download in memory: what is larger is for the command line. */
const MOST_BYTES = 2 ** 30;

function Download({ jobId, artifact: { name, bytes } }: { jobId: string; artifact: Artifact }) {
  const { client } = useSession();
  const fetching = useMutation({
    mutationFn: async () => download(name, await (await client.openArtifact(jobId, name)).blob()),
  });
  if (bytes !== null && bytes > MOST_BYTES)
    return (
      <Code>
        npx internevo artifacts get {jobId} {name}
      </Code>
    );
  return (
    <>
      <Button
        size="compact-sm"
        variant="default"
        loading={fetching.isPending}
        aria-label={`Download ${name}`}
        onClick={() => fetching.mutate()}
      >
        Download
      </Button>
      {fetching.error && (
        <Text size="sm" c="red" role="alert">
          {sentence(fetching.error.message)}
        </Text>
      )}
    </>
  );
}

/** What a job leaves, to be downloaded. */
export function Artifacts({ jobId, isActive }: { jobId: string; isActive: boolean }) {
  const { data, error, refetch } = useArtifacts(jobId, isActive);
  if (error && !data) return <Failed what="list of files" error={error} onRetry={() => void refetch()} />;
  if (!data) return <Loading label="files" rows={3} />;
  return (
    <>
      {data.absent !== null && (
        <Alert color="yellow" variant="light" mb="sm" role="note" title="Files of its ranks are not listed">
          {sentence(data.absent)}
        </Alert>
      )}
      {data.removed.map((removal) => (
        <Text key={removal.kind} size="sm" c="dimmed" mb="xs" role="note">
          {RETENTION_WORDS[removal.kind]}: {removalWords(removal)}
        </Text>
      ))}
      <Table label="Files" narrow="cards">
        <Head>
          <Row>
            <Column>Name</Column>
            <Column>Kind</Column>
            <Column numeric>Size</Column>
            <Column>Modified</Column>
            <Column aria-label="Download" />
          </Row>
        </Head>
        <Body>
          {data.items.map((artifact) => (
            <Row key={artifact.name} name={artifact.name}>
              <RowTitle>{artifact.name}</RowTitle>
              <Cell label="Kind">{KIND_WORDS[artifact.kind]}</Cell>
              <Cell label="Size" numeric>
                {artifact.bytes === null ? null : formatBytes(artifact.bytes)}
              </Cell>
              <Cell label="Modified">
                {artifact.modifiedAt === null ? null : <Moment at={artifact.modifiedAt} />}
              </Cell>
              <Cell>
                <Download jobId={jobId} artifact={artifact} />
              </Cell>
            </Row>
          ))}
        </Body>
      </Table>
    </>
  );
}
