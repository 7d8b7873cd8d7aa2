import { NativeSelect } from "@mantine/core";
import { useGivenProfiles, useProfiles } from "../data/queries.ts";

/** The profile that comes with the product. */
export const SHIPPED_PROFILE = "a800-128";

interface ProfileSelectProps {
  /** A name or an id; empty: whatever `otherwise` says. */
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly description: string;
  /** What is used where none is chosen; undefined: one has to be. */
  readonly otherwise?: string;
}

/**
 * The profiles that a job can be planned with: the shipped one, those that are stored, the newest first, and
 * those of GPUs that are estimated from published figures.
 */
export function ProfileSelect({ value, onChange, description, otherwise }: ProfileSelectProps) {
  const stored = useProfiles().data?.pages.flatMap(({ items }) => items) ?? [];
  const given = useGivenProfiles().data?.items ?? [{ name: SHIPPED_PROFILE, device: "", isEstimated: false }];
  const options = [
    ...(otherwise === undefined ? [] : [{ value: "", label: otherwise }]),
    ...given
      .filter(({ isEstimated }) => !isEstimated)
      .map(({ name }) => ({ value: name, label: `${name} (shipped)` })),
    ...stored.map(({ id, name, clusterKey }) => ({
      value: id,
      // Most names say the cluster already.
      label: stored.some((other) => other.id !== id && other.name === name)
        ? `${name} (${clusterKey})`
        : name,
    })),
    ...given
      .filter(({ isEstimated }) => isEstimated)
      .map(({ name, device }) => ({ value: name, label: `${device} from published figures` })),
  ];
  return (
    <NativeSelect
      className="wide-field"
      label="Profile"
      description={description}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      data={options}
    />
  );
}
