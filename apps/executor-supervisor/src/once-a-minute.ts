const MINUTE_MILLISECONDS = 60_000;

/**
 * Says what fails again and again, such as checkpoints on a full disk, once a minute: each line is a row of the
 * database, which may lie on that disk. The next line says how many were left out.
 */
export function onceAMinute(
  say: (line: string) => void,
  now: () => number = () => performance.now(),
): (line: string) => void {
  let saidAt = -Infinity;
  let left = 0;
  return (line) => {
    if (now() - saidAt < MINUTE_MILLISECONDS) {
      left += 1;
      return;
    }
    say(left === 0 ? line : `${line} (and ${left} more like it since the last such line)`);
    saidAt = now();
    left = 0;
  };
}
