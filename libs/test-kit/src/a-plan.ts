import { PLAIN_PLAN, type Plan } from "@internevo/domain";

/** One rank, one micro-batch, nothing shared or hidden: a test says only what it is about. */
export const aPlan = (over: Partial<Plan> = {}): Plan => ({ ...PLAIN_PLAN, ...over });

/** The fields that every plan has; what is left out of the others has a default. */
export const REQUIRED_PLAN_FIELDS = Object.keys(PLAIN_PLAN) as (keyof typeof PLAIN_PLAN)[];
