import { Type } from "typebox";

/** What every scheduler's launcher keeps of a launch that has not been concluded. */
export const LEFT_RECORD = {
  marker: Type.String({ minLength: 1, description: "a part of the name by which the scheduler knows it" }),
  label: Type.String({ description: "what is launched, in the caller's words" }),
  digest: Type.String({ description: "of program, configuration and size: equal digests, equal work" }),
  directory: Type.String({ description: "of this submission" }),
  submittedAt: Type.String(),
  runningSince: Type.Union([Type.String(), Type.Null()]),
  cancelled: Type.Boolean({ description: "somebody of ours has cancelled it" }),
  seenBytes: Type.Integer({ description: "of the events, told to a consumer" }),
} as const;
