import { NativeSelect } from "@mantine/core";
import { useProjects } from "../data/queries.ts";

/** Where something is made. An empty project is the whole installation, where `everywhere` names it. */
export function ProjectField({
  label,
  description,
  everywhere,
  project,
  onChange,
}: {
  label: string;
  description: string;
  everywhere?: string;
  project: string;
  onChange: (project: string) => void;
}) {
  const projects = useProjects();
  return (
    <NativeSelect
      mt="sm"
      label={label}
      description={description}
      value={project}
      onChange={(event) => onChange(event.currentTarget.value)}
      data={[
        ...(everywhere === undefined ? [] : [{ value: "", label: everywhere }]),
        ...(projects.data?.items ?? []).map(({ name }) => ({ value: name, label: `In project ${name}` })),
      ]}
    />
  );
}
