import { HEADROOM_REMEDY, readHeadroom, type Headroom } from "@internevo/domain";
import { InvalidArgumentError, Option } from "commander";

/** The option, as messages name it. */
export const HEADROOM = "--headroom";

function headroomArgument(text: string): Headroom {
  const headroom = readHeadroom(text);
  if (headroom === undefined) throw new InvalidArgumentError(`${HEADROOM_REMEDY}.`);
  return headroom;
}

export const headroomOption = (): Option =>
  new Option(
    `${HEADROOM} <share or size>`,
    "memory of each GPU that plans leave free, e.g. 5% or 4GB; default: none",
  ).argParser(headroomArgument);
