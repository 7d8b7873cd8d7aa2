import type { ProjectChange, ProjectRecord } from "@internevo/contracts";
import { DEFAULT_WEIGHT, formatWeight, WEIGHT_BOUNDS } from "@internevo/domain";
import { Alert, Button, Group, NumberInput, Progress, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Dialog } from "../components/dialog.tsx";
import { Body, Cell, Column, Head, Row, RowTitle, Table } from "../components/data-table.tsx";
import { Moment } from "../components/moment.tsx";
import { Page } from "../components/page.tsx";
import { Empty, Listed } from "../components/states.tsx";
import { useProjects } from "../data/queries.ts";
import { isOfInstallation, mayActAs, useSession } from "../session/session.tsx";
import { formatGpuHours, formatInteger } from "../text/format.ts";

/** What is used, of how much where there is a quota, with a bar. */
function Used({
  used,
  limit,
  format,
  what,
}: {
  used: number;
  limit: number | null;
  format: (value: number) => string;
  what: string;
}) {
  if (limit === null)
    return (
      <span>
        {format(used)} <span className="cell-note-inline">no limit</span>
      </span>
    );
  const words = `${format(used)} of ${format(limit)}`;
  const share = limit > 0 ? Math.min(100, (100 * used) / limit) : 100;
  return (
    <div className="advance">
      <span className="figures">{words}</span>
      <Progress value={share} size={4} aria-label={`${words} ${what}`} color={share >= 100 ? "red" : "evo"} />
    </div>
  );
}

/** A field of a quota: empty is no limit. */
type Quota = number | string;
const quotaOf = (given: Quota): number | null => (given === "" ? null : Number(given));

function QuotaFields({
  maxGpus,
  onMaxGpus,
  hours,
  onHours,
  weight,
  onWeight,
}: {
  maxGpus: Quota;
  onMaxGpus: (given: Quota) => void;
  hours: Quota;
  onHours: (given: Quota) => void;
  weight: Quota;
  onWeight: (given: Quota) => void;
}) {
  return (
    <>
      <NumberInput
        mt="sm"
        label="GPUs at once"
        description="What its jobs hold at most; more wait in the queue. Empty: no limit."
        value={maxGpus}
        min={0}
        allowDecimal={false}
        hideControls
        onChange={onMaxGpus}
      />
      <NumberInput
        mt="sm"
        label="GPU-hours a month"
        description="A calendar month in UTC. When they are used up nothing of it begins. Empty: no limit."
        value={hours}
        min={0}
        hideControls
        onChange={onHours}
      />
      <NumberInput
        mt="sm"
        label="Weight"
        description="Its share of GPU time beside other projects that wait: twice the weight, twice the time."
        value={weight}
        min={WEIGHT_BOUNDS.minimum}
        max={WEIGHT_BOUNDS.maximum}
        hideControls
        onChange={onWeight}
      />
    </>
  );
}

function ProjectForm({ project, onClose }: { project: ProjectRecord | undefined; onClose: () => void }) {
  const { client } = useSession();
  const queries = useQueryClient();
  const [name, setName] = useState("");
  const [description, setDescription] = useState(project?.description ?? "");
  const [maxGpus, setMaxGpus] = useState<Quota>(project?.maxGpus ?? "");
  const [hours, setHours] = useState<Quota>(project?.gpuHoursPerMonth ?? "");
  const [weight, setWeight] = useState<Quota>(project?.weight ?? DEFAULT_WEIGHT);
  const save = useMutation({
    mutationFn: () => {
      const change: ProjectChange = {
        description: description.trim(),
        maxGpus: quotaOf(maxGpus),
        gpuHoursPerMonth: quotaOf(hours),
        weight: weight === "" ? DEFAULT_WEIGHT : Number(weight),
      };
      return project === undefined
        ? client.createProject({ name: name.trim(), ...change })
        : client.changeProject(project.name, change);
    },
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ["projects"] });
      onClose();
    },
  });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        save.mutate();
      }}
    >
      {project === undefined && (
        <TextInput
          label="Name"
          description="Lower-case letters, digits and hyphens, for example nlp. It stays as it is."
          value={name}
          maxLength={63}
          onChange={(event) => setName(event.currentTarget.value)}
          data-autofocus
          required
        />
      )}
      <TextInput
        mt="sm"
        label="Description"
        value={description}
        maxLength={500}
        onChange={(event) => setDescription(event.currentTarget.value)}
        {...(project === undefined ? {} : { "data-autofocus": true })}
      />
      <QuotaFields
        maxGpus={maxGpus}
        onMaxGpus={setMaxGpus}
        hours={hours}
        onHours={setHours}
        weight={weight}
        onWeight={setWeight}
      />
      {save.isError && (
        <Alert color="red" mt="sm" role="alert">
          {save.error.message}
        </Alert>
      )}
      <Group justify="flex-end" mt="md">
        <Button variant="default" onClick={onClose}>
          Close
        </Button>
        <Button type="submit" loading={save.isPending} disabled={project === undefined && name.trim() === ""}>
          {project === undefined ? "Create the project" : "Save"}
        </Button>
      </Group>
    </form>
  );
}

function ProjectDialog({ project, label }: { project?: ProjectRecord; label: string }) {
  const [opened, { open, close }] = useDisclosure();
  return (
    <>
      {project === undefined ? (
        <Button onClick={open}>{label}</Button>
      ) : (
        <Button size="compact-sm" variant="default" onClick={open} aria-label={`${label} ${project.name}`}>
          {label}
        </Button>
      )}
      <Dialog opened={opened} onClose={close} title={project === undefined ? label : `Edit ${project.name}`}>
        <ProjectForm project={project} onClose={close} />
      </Dialog>
    </>
  );
}

function ProjectRow({ project, mayEdit }: { project: ProjectRecord; mayEdit: boolean }) {
  const { name, description, maxGpus, gpusInUse, gpuHoursPerMonth, gpuHoursThisMonth, weight, createdAt } =
    project;
  return (
    <Row name={name}>
      <RowTitle>
        <Link to="/jobs" search={{ project: name }} className="plain-link">
          {name}
        </Link>
      </RowTitle>
      <Cell label="Description">{description === "" ? undefined : description}</Cell>
      <Cell label="GPUs in use">
        <Used used={gpusInUse} limit={maxGpus} format={formatInteger} what="GPUs" />
      </Cell>
      <Cell label="GPU-hours this month">
        <Used used={gpuHoursThisMonth} limit={gpuHoursPerMonth} format={formatGpuHours} what="GPU-hours" />
      </Cell>
      <Cell label="Weight">
        <span className="figures">{formatWeight(weight)}</span>
      </Cell>
      <Cell label="Created">
        <Moment at={createdAt} />
      </Cell>
      {mayEdit && (
        <Cell label="">
          <ProjectDialog project={project} label="Edit" />
        </Cell>
      )}
    </Row>
  );
}

export function ProjectsPage() {
  const session = useSession();
  const query = useProjects();
  const projects = query.data?.items ?? [];
  const mayEdit = mayActAs(session, "admin") && isOfInstallation(session);
  return (
    <Page
      title="Projects"
      lead="Whose jobs are kept apart, and what they may use."
      actions={mayEdit ? <ProjectDialog label="Create a project" /> : undefined}
    >
      <Listed
        query={query}
        what="projects"
        isEmpty={projects.length === 0}
        empty={<Empty title="No projects">{null}</Empty>}
      >
        <Table label="Projects" narrow="cards">
          <Head>
            <Row>
              <Column>Project</Column>
              <Column>Description</Column>
              <Column>GPUs in use</Column>
              <Column>GPU-hours this month</Column>
              <Column>Weight</Column>
              <Column>Created</Column>
              {mayEdit && (
                <Column>
                  <span className="visually-hidden">Actions</span>
                </Column>
              )}
            </Row>
          </Head>
          <Body>
            {projects.map((project) => (
              <ProjectRow key={project.name} project={project} mayEdit={mayEdit} />
            ))}
          </Body>
        </Table>
      </Listed>
    </Page>
  );
}
