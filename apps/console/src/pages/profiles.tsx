import type { ProfileSummary } from "@internevo/contracts";
import { isGivenKey } from "@internevo/domain";
import { Text } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { ClusterList } from "../components/cluster-list.tsx";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../components/data-table.tsx";
import { Moment, useNow } from "../components/moment.tsx";
import { MoreButton } from "../components/more-button.tsx";
import { Page, Section } from "../components/page.tsx";
import { Badge } from "../components/state-badge.tsx";
import { Empty, Listed } from "../components/states.tsx";
import { useProfiles } from "../data/queries.ts";

export function ProfilesPage() {
  const query = useProfiles();
  return (
    <Page title="Clusters" lead="Where jobs of this installation run, and what was measured there.">
      <ClusterList />
      <Section
        title="Profiles"
        about="What was measured of each cluster, to predict plans with: how long ranks (the processes of a job, one a GPU or CPU) take to exchange data, how long each part of a layer takes to compute, and how the two slow each other down. While a profile is fresh, new jobs use it. They measure only the shapes it lacks: another sequence length, batch or model has other shapes, and a job says how many points are missing when it begins."
      >
        <ProfileList query={query} />
      </Section>
    </Page>
  );
}

function ProfileList({ query }: { query: ReturnType<typeof useProfiles> }) {
  const now = useNow();
  const profiles = query.data?.pages.flatMap(({ items }) => items) ?? [];
  return (
    <Listed query={query} what="profiles" isEmpty={profiles.length === 0} empty={<NoProfile />}>
      <Table label="Profiles" narrow="cards">
        <Head>
          <Row>
            <Column>Profile</Column>
            <Column>Cluster</Column>
            <Column>Project</Column>
            <Column>Stored</Column>
            <Column>Freshness</Column>
            <Column>Quality</Column>
          </Row>
        </Head>
        <Body>
          {profiles.map((profile) => (
            <ProfileRow key={profile.id} profile={profile} now={now} />
          ))}
        </Body>
      </Table>
      <MoreButton query={query}>Show older profiles</MoreButton>
    </Listed>
  );
}

const NoProfile = () => (
  <Empty title="No profile yet">
    <Text size="sm">
      The first job on a cluster measures it. Later jobs use its profile while it is fresh, and measure only
      the shapes it lacks.
    </Text>
  </Empty>
);

function ProfileRow({ profile, now }: { profile: ProfileSummary; now: number }) {
  const given = isGivenKey(profile.clusterKey);
  const fresh = Date.parse(profile.freshUntil) > now;
  return (
    <Row name={profile.id}>
      <RowTitle>
        <Link to="/clusters/$profileId" params={{ profileId: profile.id }} className="plain-link">
          {profile.name}
        </Link>
      </RowTitle>
      <Cell label="Cluster" className="breakable">
        {profile.clusterKey}
      </Cell>
      <Cell label="Project">{profile.project ?? <span className="nothing">all</span>}</Cell>
      <Cell label="Stored">{given ? "given" : <Moment at={profile.createdAt} both />}</Cell>
      <Cell label="Freshness">
        {given ? (
          "–"
        ) : (
          <span>
            <Badge tone={fresh ? "good" : "quiet"}>{fresh ? "Fresh" : "Stale"}</Badge>{" "}
            <span className="cell-note-inline">
              {fresh ? "goes stale" : "went stale"} <Moment at={profile.freshUntil} />
            </span>
          </span>
        )}
      </Cell>
      <Cell label="Quality">
        <Quality profile={profile} />
      </Cell>
    </Row>
  );
}

function Quality({ profile: { estimated, quality } }: { profile: ProfileSummary }) {
  if (estimated) return <Badge tone="warning">Estimated</Badge>;
  if (quality === null) return <>–</>;
  if (quality.verdict !== "noisy") return <Badge tone="good">Quiet</Badge>;
  return (
    <span>
      <Badge tone="warning">Noisy</Badge>{" "}
      <span className="cell-note-inline">
        {quality.noisyPoints} of {quality.points} points
      </span>
    </span>
  );
}
