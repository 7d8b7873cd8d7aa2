import type { Page } from "playwright-core";
import type { JobPart } from "../src/data/job-parts.ts";
import { JOB_PARTS } from "../src/data/job-parts.ts";

/** Goes to a part of a job's page by its link, as people do. */
export const showPart = (page: Page, part: JobPart): Promise<void> =>
  page
    .getByRole("navigation", { name: "Parts of the job" })
    .getByRole("link", { name: JOB_PARTS[part], exact: true })
    .click();
