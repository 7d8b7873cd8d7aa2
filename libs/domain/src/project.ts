import { Type } from "typebox";

/** Where everything is that names no project; it is always there. */
export const DEFAULT_PROJECT = "default";

/** A project's name: it stands in addresses, in job files and in the words of the queue. */
export const ProjectNameSchema = Type.String({
  minLength: 1,
  maxLength: 63,
  pattern: "^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$",
  description: "up to 63 lower-case letters, digits and hyphens, for example nlp",
});
