import { estimatedProfileWords, isGivenKey, qualityWords, type Profile } from "@internevo/domain";
import { Alert, Button, Code, NativeSelect, SegmentedControl, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { CurveChart } from "../components/chart/curve-chart.tsx";
import { seriesColour, seriesPattern } from "../components/chart/series.ts";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../components/data-table.tsx";
import { LinkTo } from "../components/links.tsx";
import { Moment } from "../components/moment.tsx";
import { Facts, Page, Section } from "../components/page.tsx";
import { ProfileActions } from "../components/profile-actions.tsx";
import { Failed, Loading } from "../components/states.tsx";
import { linearFlops, OP_WORDS, pointsOf, shapeWords, type CurvePoint } from "../data/curves.ts";
import { useProfile } from "../data/queries.ts";
import {
  formatBandwidth,
  formatBytes,
  formatCounted,
  formatFlops,
  formatInteger,
  formatPercent,
  formatSeconds,
} from "../text/format.ts";
import { isOfInstallation, mayActAs, useSession } from "../session/session.tsx";
import { OVERLAP_WORDS } from "../text/words.ts";

const route = getRouteApi("/clusters/$profileId");
const back = (
  <LinkTo to="/clusters" size="sm">
    ← Clusters
  </LinkTo>
);

function CollectiveFigures({ label, points }: { label: string; points: readonly CurvePoint[] }) {
  return (
    <details className="as-table">
      <summary>Show the figures</summary>
      <Table label={label} narrow="scroll">
        <Head>
          <Row>
            <Column>Group</Column>
            <Column numeric>Bytes</Column>
            <Column numeric>Median</Column>
            <Column numeric>p10 to p90</Column>
            <Column numeric>Bandwidth</Column>
          </Row>
        </Head>
        <Body>
          {points.map((point) => (
            <Row key={`${point.curve} ${point.bytes}`}>
              <Cell>{point.curve}</Cell>
              <Cell numeric>{formatBytes(point.bytes)}</Cell>
              <Cell numeric>{formatSeconds(point.seconds)}</Cell>
              <Cell numeric>
                {point.lowSeconds !== undefined && point.highSeconds !== undefined
                  ? `${formatSeconds(point.lowSeconds)} to ${formatSeconds(point.highSeconds)}`
                  : undefined}
              </Cell>
              <Cell numeric>{formatBandwidth(point.bandwidth)}</Cell>
            </Row>
          ))}
        </Body>
      </Table>
    </details>
  );
}

function Collectives({ profile }: { profile: Profile }) {
  const ops = useMemo(() => [...new Set(profile.collectives.map(({ op }) => op))], [profile]);
  const [asked, setOp] = useState<(typeof ops)[number]>();
  const [measure, setMeasure] = useState<"bandwidth" | "time">("bandwidth");
  const op = asked ?? ops[0];
  const points = useMemo(() => (op ? pointsOf(profile.collectives, op) : []), [profile, op]);
  const curves = [...new Set(points.map(({ curve }) => curve))];
  if (!op)
    return (
      <Text size="sm" c="dimmed">
        No collective was measured: a single rank has none.
      </Text>
    );
  return (
    <>
      <div className="controls">
        <NativeSelect
          label="Operation"
          value={op}
          onChange={(event) => setOp(event.currentTarget.value as typeof op)}
          data={ops.map((each) => ({ value: each, label: OP_WORDS[each] }))}
        />
        <SegmentedControl
          aria-label="Measure"
          value={measure}
          onChange={(value) => setMeasure(value === "time" ? "time" : "bandwidth")}
          data={[
            { value: "bandwidth", label: "Bandwidth" },
            { value: "time", label: "Time" },
          ]}
        />
      </div>
      <div className="legend">
        {curves.map((curve, index) => (
          <span key={curve} className="legend-item">
            <span
              className={`swatch ${seriesPattern(index)}`}
              style={{ backgroundColor: seriesColour(index) }}
              aria-hidden="true"
            />
            {curve}
          </span>
        ))}
      </div>
      <CurveChart
        points={points}
        measure={measure}
        label={`${OP_WORDS[op]}: ${measure} over bytes, ${formatCounted(curves.length, "curve")}`}
      />
      <CollectiveFigures label={`${OP_WORDS[op]}, measured`} points={points} />
    </>
  );
}

const MODULES_AT_ONCE = 40;

function Modules({ profile }: { profile: Profile }) {
  const { device } = profile;
  const names = useMemo(() => [...new Set(profile.modules.map(({ shape }) => shape.module))], [profile]);
  const [name, setName] = useState("");
  const [shown, setShown] = useState(MODULES_AT_ONCE);
  const modules = useMemo(
    () => profile.modules.filter(({ shape }) => name === "" || shape.module === name),
    [profile, name],
  );
  if (profile.modules.length === 0)
    return (
      <Text size="sm" c="dimmed">
        No module was measured.
      </Text>
    );
  return (
    <>
      <div className="controls">
        <NativeSelect
          label="Module"
          value={name}
          onChange={(event) => {
            setName(event.currentTarget.value);
            setShown(MODULES_AT_ONCE);
          }}
          data={[
            { value: "", label: `All, ${formatInteger(profile.modules.length)} times` },
            ...names.map((each) => ({ value: each, label: each })),
          ]}
        />
      </div>
      <Table label="Modules" narrow="cards">
        <Head>
          <Row>
            <Column>Module</Column>
            <Column>Pass</Column>
            <Column>Precision</Column>
            <Column>Sizes</Column>
            <Column numeric>Median</Column>
            <Column numeric>p10 to p90</Column>
            <Column numeric>Of peak</Column>
          </Row>
        </Head>
        <Body>
          {modules.slice(0, shown).map(({ shape, medianSeconds, p10Seconds, p90Seconds }, index) => {
            const flops = linearFlops(shape);
            const peak =
              shape.precision === "bf16" ? device.peakFlopsPerSecondBf16 : device.peakFlopsPerSecondFp32;
            return (
              <Row key={index}>
                <RowTitle>{shape.module}</RowTitle>
                <Cell label="Pass">{shape.pass}</Cell>
                <Cell label="Precision">{shape.precision}</Cell>
                <Cell label="Sizes">{shapeWords(shape)}</Cell>
                <Cell label="Median" numeric>
                  {formatSeconds(medianSeconds)}
                </Cell>
                <Cell label="p10 to p90" numeric>
                  {p10Seconds !== undefined && p90Seconds !== undefined
                    ? `${formatSeconds(p10Seconds)} to ${formatSeconds(p90Seconds)}`
                    : undefined}
                </Cell>
                <Cell label="Of peak" numeric>
                  {flops === undefined ? undefined : formatPercent(flops / medianSeconds / peak, 0)}
                </Cell>
              </Row>
            );
          })}
        </Body>
      </Table>
      {modules.length > shown && (
        <Button mt="sm" variant="default" onClick={() => setShown(shown + 5 * MODULES_AT_ONCE)}>
          Show more of the {formatInteger(modules.length - shown)} left
        </Button>
      )}
    </>
  );
}

function Overlaps({ profile }: { profile: Profile }) {
  if (profile.overlaps.length === 0)
    return (
      <Text size="sm" c="dimmed">
        No slow-down was measured: the executor on this cluster runs compute and communication one after the
        other, or they were given by hand.
      </Text>
    );
  return (
    <Table label="Slow-downs" narrow="cards">
      <Head>
        <Row>
          <Column>Collective</Column>
          <Column numeric>Bytes</Column>
          <Column numeric>Group</Column>
          <Column>Beside</Column>
          <Column numeric>Slow-down</Column>
        </Row>
      </Head>
      <Body>
        {profile.overlaps.map(({ op, bytes, groupSize, shape, slowdown }, index) => (
          <Row key={index}>
            <RowTitle>{OP_WORDS[op]}</RowTitle>
            <Cell label="Bytes" numeric>
              {bytes === undefined ? "any" : formatBytes(bytes)}
            </Cell>
            <Cell label="Group" numeric>
              {formatCounted(groupSize, "rank")}
            </Cell>
            <Cell label="Beside">
              {shape ? `${shape.module} ${shape.pass}: ${shapeWords(shape)}` : "any module"}
            </Cell>
            <Cell label="Slow-down" numeric>
              {slowdown.toFixed(2)} ×
            </Cell>
          </Row>
        ))}
      </Body>
    </Table>
  );
}

function QualityNote({ quality }: { quality: NonNullable<Profile["quality"]> }) {
  return (
    <Alert
      color={quality.verdict === "noisy" ? "yellow" : "gray"}
      variant="light"
      mb="sm"
      role={quality.verdict === "noisy" ? "alert" : undefined}
      title={
        quality.verdict === "noisy" ? "Measured while the machine was busy" : "Measured on a quiet machine"
      }
    >
      {qualityWords(quality).map((words) => (
        <Text key={words} size="sm">
          {words}
        </Text>
      ))}
    </Alert>
  );
}

/** Whether a profile is estimated from published figures, as the command line says it. */
function EstimatedNote({ profile }: { profile: Profile }) {
  const words = estimatedProfileWords(profile);
  return words === undefined ? null : (
    <Alert variant="light" color="yellow" mb="sm" title="Estimated, not measured">
      <Text size="sm">{words}</Text>
    </Alert>
  );
}

function DeviceFacts({ profile: { device, cluster, executor } }: { profile: Profile }) {
  return (
    <Facts
      items={[
        { name: "Device", value: device.name },
        {
          name: "Ranks",
          value: `${formatInteger(cluster.nodes)} × ${formatInteger(cluster.gpusPerNode)}`,
          note:
            cluster.memoryPerGpuBytes === undefined
              ? undefined
              : `${formatBytes(cluster.memoryPerGpuBytes)} each`,
        },
        { name: "Peak fp32", value: formatFlops(device.peakFlopsPerSecondFp32), note: "a rank" },
        { name: "Peak bf16", value: formatFlops(device.peakFlopsPerSecondBf16), note: "a rank" },
        { name: "Memory bandwidth", value: formatBandwidth(device.memoryBandwidthBytesPerSecond) },
        {
          name: "Memory of the program",
          value: formatBytes(device.runtimeBytes),
          note: "a rank, before its first tensor",
        },
        { name: "Overlap, forward", value: OVERLAP_WORDS[executor.forwardOverlap] },
        { name: "Overlap, backward", value: OVERLAP_WORDS[executor.backwardOverlap] },
      ]}
    />
  );
}

interface Stored {
  readonly createdAt: string;
  readonly freshUntil: string | null;
}

function Sources({ provenance, createdAt, freshUntil }: Stored & { provenance: Profile["provenance"] }) {
  return (
    <Section title="Where the numbers come from" folded>
      <Facts
        items={[
          { name: "Source", value: provenance.source, wide: true },
          {
            name: "Measured",
            value: provenance.measuredAt === null ? "not said" : <Moment at={provenance.measuredAt} both />,
          },
          { name: "Stored", value: <Moment at={createdAt} both /> },
          ...(freshUntil === null ? [] : [{ name: "Fresh until", value: <Moment at={freshUntil} both /> }]),
          ...(provenance.command === null
            ? []
            : [
                {
                  name: "Command",
                  value: <Code className="breakable">{provenance.command}</Code>,
                  wide: true,
                },
              ]),
          ...Object.entries(provenance.versions).map(([name, version]) => ({ name, value: version })),
        ]}
      />
      {provenance.notes.map((note) => (
        <Text key={note} size="sm" mt="xs">
          {note}
        </Text>
      ))}
    </Section>
  );
}

function ProfileView({ profile, createdAt, freshUntil }: Stored & { profile: Profile }) {
  const { provenance, quality } = profile;
  return (
    <>
      {quality && <QualityNote quality={quality} />}
      <EstimatedNote profile={profile} />
      <DeviceFacts profile={profile} />
      <Section
        title="Communication"
        about="Collectives are operations in which a group of ranks exchanges data: an all-gather gives every rank the parts of all. Median time of each by size and group, on logarithmic axes; bytes count the whole tensor of the operation."
      >
        <Collectives profile={profile} />
      </Section>
      <Section
        title="Computation"
        folded={`${formatInteger(profile.modules.length)} times`}
        about="Modules are the parts of a layer. Time of each alone, forward and backward: its median, and from the time that one run in ten was below (p10) to the time that one in ten was above (p90). The share of the device's peak is given for matrix products."
      >
        <Modules profile={profile} />
      </Section>
      <Section
        title="Both at once"
        folded={formatInteger(profile.overlaps.length)}
        about="A module and a collective that run together slow each other down: their time together, over that of the longer one alone."
      >
        <Overlaps profile={profile} />
      </Section>
      <Sources provenance={provenance} createdAt={createdAt} freshUntil={freshUntil} />
    </>
  );
}

export function ProfilePage() {
  const { profileId } = route.useParams();
  const session = useSession();
  const query = useProfile(profileId);
  if (!query.data)
    return (
      <Page title="Profile" above={back}>
        {query.isError ? (
          <Failed what="profile" error={query.error} onRetry={() => void query.refetch()} />
        ) : (
          <Loading label="profile" />
        )}
      </Page>
    );
  const { profile, name, clusterKey, project, createdAt, freshUntil, discardedAt } = query.data;
  const isOwn = isOfInstallation(session) || project === session.project;
  return (
    <Page
      title={name}
      above={back}
      actions={
        mayActAs(session, "operator") && isOwn && discardedAt === null ? (
          <ProfileActions id={profileId} name={name} isGiven={isGivenKey(clusterKey)} />
        ) : undefined
      }
      lead={
        <span className="breakable">
          {clusterKey}
          {project === null ? "" : `, of project ${project}`}
        </span>
      }
    >
      {discardedAt !== null && (
        <Alert color="gray" variant="light" mb="sm">
          Discarded <Moment at={discardedAt} both />: no new job uses it.
        </Alert>
      )}
      <ProfileView
        profile={profile}
        createdAt={createdAt}
        freshUntil={isGivenKey(clusterKey) ? null : freshUntil}
      />
    </Page>
  );
}
