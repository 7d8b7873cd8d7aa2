import { formatCounted, formatInteger, formatPercent } from "./figures.ts";
import { Type, type Static } from "typebox";

const seconds = Type.Number({ minimum: 0, maximum: 1e12 });

/**
 * What a host did while ranks measured on it. Processor time counts every core: two busy cores make 2 s a
 * second.
 */
export const HostUseSchema = Type.Object(
  {
    host: Type.String({ maxLength: 300 }),
    ranks: Type.Integer({ minimum: 1 }),
    cores: Type.Integer({ minimum: 0, description: "0: not known" }),
    seconds: Type.Number({ minimum: 0, description: "how long it was watched" }),
    ranksSeconds: seconds,
    othersSeconds: Type.Number({
      minimum: 0,
      maximum: 1e12,
      description: "processor time of all processes but the ranks",
    }),
    stolenSeconds: Type.Number({
      minimum: 0,
      maximum: 1e12,
      description: "processor time that a hypervisor gave to other machines",
    }),
    loadBefore: Type.Number({ minimum: 0, description: "load average of one minute" }),
    loadAfter: Type.Number({ minimum: 0 }),
    runnableBefore: Type.Integer({ minimum: 0, description: "threads that ran or waited for a core" }),
    runnableAfter: Type.Integer({ minimum: 0 }),
    involuntarySwitches: Type.Integer({
      minimum: 0,
      description: "times that a rank lost its core before it gave it away",
    }),
    clockBeforeHertz: Type.Optional(
      Type.Number({ minimum: 0, description: "mean over the cores; absent where the host does not say" }),
    ),
    clockAfterHertz: Type.Optional(Type.Number({ minimum: 0 })),
  },
  { additionalProperties: false },
);
export type HostUse = Static<typeof HostUseSchema>;

/** Default share of a host's processor time, in per cent, from which on others count as a disturbance. */
export const DEFAULT_MOST_OTHERS_PERCENT = 10;

/** A host is watched in ticks of 10 ms: of a shorter time its shares say nothing. */
const LEAST_SECONDS = 0.2;

/**
 * Share of a host's processor time that its ranks could not have, 0 to 1; undefined where it was watched for
 * too short a time.
 */
export function othersShare({
  cores,
  seconds: watched,
  othersSeconds,
  stolenSeconds,
}: HostUse): number | undefined {
  return cores === 0 || watched < LEAST_SECONDS
    ? undefined
    : Math.min(1, (othersSeconds + stolenSeconds) / (cores * watched));
}

const percent = (fraction: number): string => formatPercent(fraction, fraction < 0.1 ? 1 : 0);

const OTHERS_TOOK = /^(.*?): others took (< )?([\d.]+)% of the processor time/;

/**
 * What {@link disturbancesOf} said of several measurements, once a host: how much others took at least and at
 * most.
 */
export function summedDisturbances(disturbances: readonly string[]): string[] {
  const ofHost = Map.groupBy(disturbances, (each) => OTHERS_TOOK.exec(each)?.[1]);
  return [...ofHost].flatMap(([host, lines]) => {
    if (host === undefined || lines.length === 1) return lines;
    const shares = lines.map((line) => Number(OTHERS_TOOK.exec(line)?.[3])).sort((a, b) => a - b);
    const [least, most] = [shares[0] ?? 0, shares.at(-1) ?? 0].map((share) => percent(share / 100));
    const range = least === most ? least : `${least} to ${most}`;
    return [
      `${host}: others took ${range} of the processor time in ${formatInteger(lines.length)} measurements`,
    ];
  });
}

/**
 * Why the figures of ranks on these hosts may be wrong, one sentence a host; none where the hosts had nothing
 * else to do.
 */
export function disturbancesOf(hosts: readonly HostUse[], mostOthersPercent: number): string[] {
  return hosts.flatMap((use) => {
    const share = othersShare(use);
    if (share === undefined || 100 * share <= mostOthersPercent) return [];
    const stolen =
      use.stolenSeconds > use.othersSeconds / 10
        ? `, ${percent(use.stolenSeconds / (use.cores * use.seconds))} of it stolen by other machines`
        : "";
    return [
      `${use.host}: others took ${percent(share)} of the processor time${stolen}; load ${use.loadBefore.toFixed(1)} before, ${use.loadAfter.toFixed(1)} after; ranks lost their core ${formatCounted(use.involuntarySwitches, "time")}`,
    ];
  });
}
