/** What mpirun frames its messages with. */
const FRAME = /^-{40,}$/;
/** How such a message begins that only tells of ranks that ended with an exit code. */
const ABORT = /^(Primary job\s+terminated normally, but|mpirun detected that one or more processes exited)/;
/** That mpirun passes on the signal that it was sent for this. */
const PASSES_ON = /^mpirun: Forwarding signal \d+ to job$/;

/**
 * Leaves out what mpirun says of ranks that were asked to end, and did: their exit code is no fault. Lines of the
 * ranks themselves stay, and so do other messages.
 * @param isStopping whether the ranks were asked to end.
 */
export function withoutAbortText(
  onLine: (line: string) => void,
  isStopping: () => boolean,
): (line: string) => void {
  /** A frame whose message has not begun. */
  let frame: string | undefined;
  let isInside = false;
  return (line) => {
    const isFrame = FRAME.test(line);
    if (isInside) {
      isInside = !isFrame;
      return;
    }
    if (frame !== undefined && ABORT.test(line)) {
      frame = undefined;
      isInside = true;
      return;
    }
    if (frame !== undefined) onLine(frame);
    frame = undefined;
    if (isFrame && isStopping()) frame = line;
    else if (!(PASSES_ON.test(line) && isStopping())) onLine(line);
  };
}
