/** Timelines are read where profiles are measured with them. */
export { readTimeline, stepsOf, type LaneEvent } from "@internevo/launcher";
