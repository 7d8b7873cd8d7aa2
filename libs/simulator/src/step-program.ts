import { pipelineSchedule, type PipelineOperation } from "@internevo/plan";
import { StageProgram } from "./stage-program.ts";
import type { StepWork } from "./step-work.ts";
import type { Task } from "./lanes.ts";

/** Tasks of one optimizer step of every pipeline stage. */
export function stepProgram(work: StepWork): Task[] {
  const { stages, chunks, microBatches } = work;
  const tasks: Task[] = [];
  const queues = Array.from({ length: stages }, (_, stage) =>
    pipelineSchedule(stage, stages, microBatches, chunks),
  );
  const programs = queues.map((operations, stage) => new StageProgram(work, stage, operations, tasks));
  const at = new Array<number>(stages).fill(0);
  /** Messages that have been sent, by receiver. */
  const messages = new Map<string, number>();
  const virtualStages = stages * chunks;
  // Tasks are listed when their messages are: every stage goes on until it waits for one that is not on its
  // way.
  for (let moved = true; moved;) {
    moved = false;
    for (const [stage, program] of programs.entries()) {
      for (;;) {
        const operation = (queues[stage] as PipelineOperation[])[at[stage] as number];
        if (!operation) break;
        const { pass, microBatch } = operation;
        const virtualStage = operation.chunk * stages + stage;
        const needs =
          stages > 1 && (pass === "forward" ? virtualStage > 0 : virtualStage < virtualStages - 1);
        const arrival = needs ? messages.get(`${pass} ${virtualStage} ${microBatch}`) : undefined;
        if (needs && arrival === undefined) break;
        program[pass](operation, arrival);
        const to = pass === "forward" ? virtualStage + 1 : virtualStage - 1;
        if (stages > 1 && to >= 0 && to < virtualStages)
          messages.set(`${pass} ${to} ${microBatch}`, program.send(pass, microBatch));
        at[stage] = (at[stage] as number) + 1;
        moved = true;
      }
    }
  }
  const reduced = programs.map((program) => program.reduce());
  for (const program of programs) program.update(reduced);
  return tasks;
}
