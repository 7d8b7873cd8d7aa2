import { hadChildren, hasCompany } from "./processes.ts";

const LOOK_MILLISECONDS = 1000;
/** Until the first rank is there: it may be gone soon. */
const START_MILLISECONDS = 50;
/** Looks in a row that find nobody: an orderly end of mpirun takes less. */
const LOOKS = 5;

/**
 * Notices a launcher that stays when all its ranks are gone. Open MPI's mpirun does that when a rank is
 * killed at a bad moment, while it starts for instance: it has ended the others, and waits for ever for a
 * lock of its own in the end.
 * @param pid leads a session, in which its ranks are: not that of a launcher whose ranks are on hosts of
 * their own (ssh, srun).
 * @param spoke whether a rank has said anything: it may have come and gone between two looks, and its end not
 *   been noticed by the launcher.
 * @param onAlone called once.
 * @returns ends the watch.
 */
export function watchLauncher(pid: number, spoke: () => boolean, onAlone: () => void): () => void {
  let alone = 0;
  let timer = setInterval(() => {
    if (!spoke() && !hasCompany(pid) && !hadChildren(pid)) return;
    clearInterval(timer);
    timer = setInterval(() => {
      alone = hasCompany(pid) ? 0 : alone + 1;
      if (alone < LOOKS) return;
      clearInterval(timer);
      onAlone();
    }, LOOK_MILLISECONDS);
  }, START_MILLISECONDS);
  return () => clearInterval(timer);
}
