import { aPlan } from "@internevo/test-kit";
import type { Plan } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import {
  buildMesh,
  groupGeometry,
  MESH_DIMENSIONS,
  nodesTouched,
  placementClass,
  placementOf,
} from "./mesh.ts";
import { divisors } from "./factors.ts";

const plan = (over: Partial<Plan>): Plan => aPlan(over);

/** Every way of laying out `ranks` ranks, both configurations. */
function* layouts(ranks: number): Generator<Plan> {
  for (const pp of divisors(ranks))
    for (const sp of divisors(ranks / pp))
      for (const tp of sp > 1 ? [1, sp] : [1]) {
        const dp = ranks / pp / sp;
        const replicas = (dp * sp) / tp;
        for (const ps of divisors(replicas))
          for (const oss of divisors(replicas / ps)) {
            yield plan({
              pipelineParallel: pp,
              dataParallel: dp,
              tensorParallel: tp,
              sequenceParallel: sp,
              parameterSharding: ps,
              optimizerStateSharding: oss,
            });
          }
      }
}

describe("buildMesh", () => {
  it("partitions the ranks in every dimension of every layout", () => {
    for (const ranks of [1, 2, 6, 8, 12, 16, 24]) {
      for (const layout of layouts(ranks)) {
        const mesh = buildMesh(layout);
        for (const dimension of MESH_DIMENSIONS) {
          const groups = mesh[dimension];
          const all = groups.flat().sort((a, b) => a - b);
          expect(all).toEqual(Array.from({ length: ranks }, (_, rank) => rank));
          for (const group of groups) expect(group.length).toBe(groupGeometry(layout, dimension).size);
        }
      }
    }
  });

  it("follows the formula of the executor: sequence ranks fastest, shards among the ranks of one slice", () => {
    const layout = plan({
      pipelineParallel: 2,
      dataParallel: 2,
      sequenceParallel: 4,
      parameterSharding: 2,
      optimizerStateSharding: 2,
    });
    const mesh = buildMesh(layout);
    expect(mesh.sequenceParallel).toEqual([
      [0, 1, 2, 3],
      [4, 5, 6, 7],
      [8, 9, 10, 11],
      [12, 13, 14, 15],
    ]);
    expect(mesh.dataParallel[0]).toEqual([0, 4]);
    expect(mesh.pipelineParallel[1]).toEqual([1, 9]);
    expect(mesh.parameterSharding[0]).toEqual([0, 1]);
    // r = rank inside the stage; psIndex = r % ps; ossIndex = (r / ps) % oss; the rest is replicas.
    expect(mesh.optimizerStateSharding.slice(0, 4)).toEqual([
      [0, 2],
      [1, 3],
      [4, 6],
      [5, 7],
    ]);
    expect(mesh.gradientReplicas.slice(0, 2)).toEqual([
      [0, 2, 4, 6],
      [1, 3, 5, 7],
    ]);
  });

  it("keeps the tensor slices apart in config 1", () => {
    const mesh = buildMesh(
      plan({
        dataParallel: 4,
        tensorParallel: 2,
        sequenceParallel: 2,
        parameterSharding: 2,
        optimizerStateSharding: 2,
      }),
    );
    expect(mesh.tensorParallel).toEqual([
      [0, 1],
      [2, 3],
      [4, 5],
      [6, 7],
    ]);
    expect(mesh.parameterSharding).toEqual([
      [0, 2],
      [1, 3],
      [4, 6],
      [5, 7],
    ]);
    expect(mesh.gradientReplicas).toEqual([
      [0, 4],
      [1, 5],
      [2, 6],
      [3, 7],
    ]);
  });

  it("refuses factors that do not divide, by name", () => {
    expect(() => buildMesh(plan({ dataParallel: 4, parameterSharding: 3 }))).toThrow(/parameterSharding 3/);
    expect(() =>
      buildMesh(plan({ dataParallel: 4, parameterSharding: 2, optimizerStateSharding: 4 })),
    ).toThrow(/optimizerStateSharding 4/);
    expect(() => buildMesh(plan({ sequenceParallel: 4, tensorParallel: 2 }))).toThrow(/tensorParallel 2/);
  });
});

describe("nodesTouched", () => {
  it("equals a count over the groups themselves", () => {
    for (const ranks of [8, 12, 24])
      for (const perNode of [1, 2, 3, 4, 8, 12])
        for (const layout of layouts(ranks)) {
          const mesh = buildMesh(layout);
          for (const dimension of MESH_DIMENSIONS) {
            const counted = Math.max(
              ...mesh[dimension].map(
                (group) => new Set(group.map((rank) => Math.floor(rank / perNode))).size,
              ),
            );
            const touched = nodesTouched(groupGeometry(layout, dimension), perNode);
            // Beyond the last rank the closed form may see a start that the cluster does not have; it is
            // never below.
            expect(touched).toBeGreaterThanOrEqual(counted);
            if (ranks % perNode === 0) expect(touched).toBe(counted);
          }
        }
  });

  it("names placements", () => {
    expect(placementClass(8, 1)).toBe("intra-node");
    expect(placementClass(4, 4)).toBe("inter-node");
    expect(placementClass(16, 2)).toBe("mixed");
    expect(
      placementOf(plan({ dataParallel: 128, parameterSharding: 4 }), { gpusPerNode: 8 }).nodesPerGroup,
    ).toMatchObject({ parameterSharding: 1, gradientReplicas: 16 });
  });
});
