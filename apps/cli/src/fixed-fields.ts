import { Option } from "commander";

/** The option, as messages name it. */
export const FIX = "--fix";

/** Fixes fields of the plans that a command looks at; what it is given is read where the job is. */
export const fixOption = (): Option =>
  new Option(
    `${FIX} <field=value>`,
    "only plans with this value, e.g. tp=8, or with one of some: tp=4,8; again for another field",
  ).argParser((text: string, before: readonly string[] | undefined) => [...(before ?? []), text]);
