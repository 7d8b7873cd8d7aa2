import { HEADROOM_REMEDY, readHeadroom } from "@internevo/domain";
import { TextInput } from "@mantine/core";

/** What keeps a headroom from being asked for; undefined: nothing. */
export const headroomFault = (text: string): string | undefined =>
  text.trim() === "" || readHeadroom(text) !== undefined
    ? undefined
    : HEADROOM_REMEDY.charAt(0).toUpperCase() + HEADROOM_REMEDY.slice(1);

/** The field of a request; nothing where nothing is kept free. */
export const headroomOf = (text: string): { readonly headroom?: string } =>
  text.trim() === "" ? {} : { headroom: text.trim() };

interface HeadroomFieldProps {
  /** As written: 5%, 4GB; empty: none. */
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly error: string | undefined;
}

/** Memory of each GPU that plans leave free. */
export function HeadroomField({ value, onChange, error }: HeadroomFieldProps) {
  return (
    <TextInput
      label="Headroom"
      description="Memory of a GPU to leave free"
      placeholder="None; 5% or 4GB"
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      error={error}
      spellCheck={false}
      autoComplete="off"
    />
  );
}
