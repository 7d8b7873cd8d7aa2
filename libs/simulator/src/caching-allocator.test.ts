import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { mlpForwardTrace } from "./allocation-traces.ts";
import { CachingAllocator, OutOfDeviceMemory, type Allocation } from "./caching-allocator.ts";

const MIB = 2 ** 20;

describe("caching allocator", () => {
  it("takes the smallest free block that is large enough and splits it", () => {
    const allocator = new CachingAllocator(Infinity);
    const large = allocator.allocate(64 * MIB);
    const fits = allocator.allocate(32 * MIB);
    allocator.free(large);
    allocator.free(fits);
    expect(allocator.allocate(24 * MIB).address).toBe(fits.address);
    expect(allocator.statistics()).toMatchObject({
      strandedBytes: 8 * MIB,
      largestFreeBlockBytes: 64 * MIB,
      segments: 2,
    });
  });

  it("keeps small requests in small segments", () => {
    const allocator = new CachingAllocator(Infinity);
    allocator.free(allocator.allocate(64 * MIB));
    allocator.allocate(1000);
    expect(allocator.statistics()).toMatchObject({ allocatedBytes: 1024, reservedBytes: 66 * MIB });
  });

  it("gives wholly free segments back before it refuses, and says what is free in pieces", () => {
    const allocator = new CachingAllocator(100 * MIB);
    const first = allocator.allocate(60 * MIB);
    allocator.free(first);
    expect(allocator.allocate(80 * MIB).bytes).toBe(80 * MIB);
    expect(allocator.statistics()).toMatchObject({ deviceFrees: 1, deviceAllocations: 2 });
    expect(() => allocator.allocate(30 * MIB)).toThrow(OutOfDeviceMemory);
  });

  it("refuses to free twice", () => {
    const allocator = new CachingAllocator(Infinity);
    const block = allocator.allocate(512);
    allocator.free(block);
    expect(() => allocator.free(block)).toThrow(/is not allocated/);
  });

  it("never overlaps, counts exactly, and merges all when everything is freed", () => {
    const action = fc.oneof(
      fc.record({ allocate: fc.integer({ min: 1, max: 48 * MIB }) }),
      fc.record({ free: fc.nat() }),
    );
    fc.assert(
      fc.property(fc.array(action, { maxLength: 120 }), (actions) => {
        const allocator = new CachingAllocator(Infinity);
        const live: Allocation[] = [];
        for (const each of actions) {
          if ("allocate" in each) live.push(allocator.allocate(each.allocate));
          else if (live.length > 0) allocator.free(live.splice(each.free % live.length, 1)[0] as Allocation);
          const sorted = [...live].sort((a, b) => a.address - b.address);
          for (let i = 1; i < sorted.length; i += 1) {
            const before = sorted[i - 1] as Allocation;
            expect(before.address + before.bytes).toBeLessThanOrEqual((sorted[i] as Allocation).address);
          }
          const statistics = allocator.statistics();
          expect(statistics.allocatedBytes).toBe(live.reduce((sum, { bytes }) => sum + bytes, 0));
          expect(statistics.reservedBytes).toBe(allocator.map().reduce((sum, { bytes }) => sum + bytes, 0));
        }
        for (const each of live) allocator.free(each);
        expect(allocator.map().every(({ blocks }) => blocks.length === 1 && blocks[0]?.free === true)).toBe(
          true,
        );
      }),
    );
  });
});

describe("the paper's example: MLP outputs of 65B at 256K", () => {
  const shape = { layers: 80, rows: 16_384, hiddenSize: 8192, ffnHiddenSize: 22_016, elementBytes: 2 };

  it("requests 688 MiB three times a layer, keeps 256 MiB, and loses 176 MiB in each segment", () => {
    const result = mlpForwardTrace(shape);
    expect(result.requestBytes).toBe(688 * MIB);
    expect(result.survivorBytes).toBe(256 * MIB);
    expect(result.lostBytesBySegment).toHaveLength(40);
    expect(new Set(result.lostBytesBySegment)).toEqual(new Set([176 * MIB]));
    // The paper's "up to 5.32 GiB" are 31 such segments, the outputs of 62 layers: 5.328.
    expect((result.strandedBytesByLayer[61] as number) / 2 ** 30).toBeCloseTo(5.328, 3);
  });

  it("loses nothing when the outputs of three layers are one block, but for the two layers that remain of 80", () => {
    const whole = mlpForwardTrace({ ...shape, layers: 78 }, 3);
    expect(whole.lostBytesBySegment).toEqual([]);
    expect(whole.reservedBytes).toBe((78 * 256 + 3 * 688) * MIB);
    expect(mlpForwardTrace(shape, 3).lostBytesBySegment).toEqual([176 * MIB]);
  });
});
