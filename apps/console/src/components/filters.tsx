import { TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { useState, type ReactNode } from "react";

/** What a list is narrowed by, side by side where there is room. */
export const Filters = ({ children }: { children: ReactNode }) => (
  <div className="filters" role="search">
    {children}
  </div>
);

const TYPING_MILLISECONDS = 300;

/** A text that a list is narrowed by, when whoever types it pauses. */
export function FilterText({
  label,
  placeholder,
  value,
  onChange,
}: {
  label: string;
  placeholder?: string;
  value: string;
  onChange: (value: string) => void;
}) {
  const [text, setText] = useState(value);
  const tell = useDebouncedCallback(onChange, TYPING_MILLISECONDS);
  return (
    <TextInput
      label={label}
      placeholder={placeholder}
      value={text}
      maxLength={100}
      onChange={(event) => {
        setText(event.currentTarget.value);
        tell(event.currentTarget.value.trim());
      }}
    />
  );
}

/** A search without what is empty: a filter that was cleared leaves the address. */
export const withoutEmpty = <T extends object>(search: T): Partial<T> =>
  Object.fromEntries(
    Object.entries(search).filter(([, value]) => value !== "" && value !== undefined),
  ) as Partial<T>;
