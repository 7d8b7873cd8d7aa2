/*
 * A caching best-fit allocator over addresses, as deep-learning frameworks put one before the device's own allocator
 * (paper, section "Memory Fragmentation Manager" and appendix "Defragmentation"). The trainer does not use it: it is what
 * the trainer's planned memory is compared with.
 */

const MIB = 2 ** 20;

/** The rules of PyTorch's CUDA caching allocator at its defaults; all in bytes. */
export interface AllocatorRules {
  /** Every request is rounded up to a multiple of this. */
  readonly roundBytes: number;
  /** Requests up to this come from small segments of `smallSegmentBytes`; only they do. */
  readonly smallRequestBytes: number;
  readonly smallSegmentBytes: number;
  /** Requests below this, which are not small, open segments of `mediumSegmentBytes`. */
  readonly mediumRequestBytes: number;
  readonly mediumSegmentBytes: number;
  /** Larger requests open a segment of their own size, rounded up to this. */
  readonly largeSegmentRoundBytes: number;
}

export const PYTORCH_RULES: AllocatorRules = {
  roundBytes: 512,
  smallRequestBytes: MIB,
  smallSegmentBytes: 2 * MIB,
  mediumRequestBytes: 10 * MIB,
  mediumSegmentBytes: 20 * MIB,
  largeSegmentRoundBytes: 2 * MIB,
};

interface Block {
  readonly segment: Segment;
  /** Offset inside the segment. */
  offset: number;
  bytes: number;
  free: boolean;
}

interface Segment {
  readonly address: number;
  readonly bytes: number;
  readonly small: boolean;
  /** In order of offset, without gaps. */
  readonly blocks: Block[];
}

export interface AllocatorStatistics {
  /** Held by the program now, rounded. */
  readonly allocatedBytes: number;
  /** Taken from the device now: allocated and cached. */
  readonly reservedBytes: number;
  readonly peakAllocatedBytes: number;
  readonly peakReservedBytes: number;
  /** Free blocks in segments that something else still occupies: they cannot be given back. */
  readonly strandedBytes: number;
  readonly largestFreeBlockBytes: number;
  readonly segments: number;
  /** Calls to the device's allocator, each of which synchronises a real device. */
  readonly deviceAllocations: number;
  readonly deviceFrees: number;
}

/** The device cannot give `requestedBytes`, though `strandedBytes` are free in pieces. */
export class OutOfDeviceMemory extends Error {
  readonly requestedBytes: number;
  readonly statistics: AllocatorStatistics;

  constructor(requestedBytes: number, deviceBytes: number, statistics: AllocatorStatistics) {
    super(
      `no ${requestedBytes} bytes on a device of ${deviceBytes}: ${statistics.allocatedBytes} are in use, ` +
        `${statistics.strandedBytes} are free in pieces of at most ${statistics.largestFreeBlockBytes}`,
    );
    this.name = "OutOfDeviceMemory";
    this.requestedBytes = requestedBytes;
    this.statistics = statistics;
  }
}

/** What `allocate` hands out; give it back with `free`. */
export type Allocation = { readonly bytes: number; readonly address: number };

export class CachingAllocator {
  readonly #rules: AllocatorRules;
  readonly #deviceBytes: number;
  readonly #live = new Map<Allocation, Block>();
  #segments: Segment[] = [];
  #nextAddress = 0;
  #allocated = 0;
  #reserved = 0;
  #peakAllocated = 0;
  #peakReserved = 0;
  #deviceAllocations = 0;
  #deviceFrees = 0;

  /** @param deviceBytes what the device has; Infinity for no limit. */
  constructor(deviceBytes: number, rules: AllocatorRules = PYTORCH_RULES) {
    if (!(deviceBytes > 0)) throw new RangeError(`deviceBytes ${deviceBytes}: must be above 0`);
    this.#deviceBytes = deviceBytes;
    this.#rules = rules;
  }

  /**
   * The smallest free block that is large enough (of equals the one at the lowest address), split where
   * enough is left; else a new segment; else, after all wholly free segments went back to the device, a new
   * segment once more.
   * @throws OutOfDeviceMemory
   */
  allocate(requestedBytes: number): Allocation {
    if (!Number.isSafeInteger(requestedBytes) || requestedBytes <= 0)
      throw new RangeError(`requestedBytes ${requestedBytes}: must be a positive integer`);
    const bytes = Math.ceil(requestedBytes / this.#rules.roundBytes) * this.#rules.roundBytes;
    const small = bytes <= this.#rules.smallRequestBytes;
    const block = this.#bestFit(bytes, small) ?? this.#newSegment(bytes, small);
    this.#split(block, bytes);
    block.free = false;
    this.#allocated += block.bytes;
    this.#peakAllocated = Math.max(this.#peakAllocated, this.#allocated);
    const allocation = { bytes: block.bytes, address: block.segment.address + block.offset };
    this.#live.set(allocation, block);
    return allocation;
  }

  /** @throws Error when it was freed before, or never allocated here. */
  free(allocation: Allocation): void {
    const block = this.#live.get(allocation);
    if (block === undefined) throw new Error(`address ${allocation.address} is not allocated`);
    this.#live.delete(allocation);
    this.#allocated -= block.bytes;
    block.free = true;
    const { blocks } = block.segment;
    const index = blocks.indexOf(block);
    const next = blocks[index + 1];
    if (next?.free === true) {
      block.bytes += next.bytes;
      blocks.splice(index + 1, 1);
    }
    const previous = blocks[index - 1];
    if (previous?.free === true) {
      previous.bytes += block.bytes;
      blocks.splice(index, 1);
    }
  }

  statistics(): AllocatorStatistics {
    let stranded = 0;
    let largest = 0;
    for (const segment of this.#segments) {
      for (const block of segment.blocks) {
        if (!block.free) continue;
        largest = Math.max(largest, block.bytes);
        if (segment.blocks.length > 1) stranded += block.bytes;
      }
    }
    return {
      allocatedBytes: this.#allocated,
      reservedBytes: this.#reserved,
      peakAllocatedBytes: this.#peakAllocated,
      peakReservedBytes: this.#peakReserved,
      strandedBytes: stranded,
      largestFreeBlockBytes: largest,
      segments: this.#segments.length,
      deviceAllocations: this.#deviceAllocations,
      deviceFrees: this.#deviceFrees,
    };
  }

  /** Every segment with its blocks, by address: for pictures and tests. */
  map(): {
    readonly address: number;
    readonly bytes: number;
    readonly blocks: readonly { readonly offset: number; readonly bytes: number; readonly free: boolean }[];
  }[] {
    return this.#segments.map(({ address, bytes, blocks }) => ({
      address,
      bytes,
      blocks: blocks.map(({ offset, bytes: size, free }) => ({ offset, bytes: size, free })),
    }));
  }

  #bestFit(bytes: number, small: boolean): Block | undefined {
    let best: Block | undefined;
    for (const segment of this.#segments) {
      if (segment.small !== small) continue;
      for (const block of segment.blocks) {
        if (block.free && block.bytes >= bytes && (best === undefined || block.bytes < best.bytes))
          best = block;
      }
    }
    return best;
  }

  #newSegment(bytes: number, small: boolean): Block {
    const { smallSegmentBytes, mediumRequestBytes, mediumSegmentBytes, largeSegmentRoundBytes } = this.#rules;
    const rounded = Math.ceil(bytes / largeSegmentRoundBytes) * largeSegmentRoundBytes;
    const large = bytes < mediumRequestBytes ? mediumSegmentBytes : rounded;
    const size = small ? smallSegmentBytes : large;
    if (this.#reserved + size > this.#deviceBytes) this.#releaseCached();
    if (this.#reserved + size > this.#deviceBytes)
      throw new OutOfDeviceMemory(bytes, this.#deviceBytes, this.statistics());
    const segment: Segment = { address: this.#nextAddress, bytes: size, small, blocks: [] };
    const block: Block = { segment, offset: 0, bytes: size, free: true };
    segment.blocks.push(block);
    this.#segments.push(segment);
    this.#nextAddress += size;
    this.#reserved += size;
    this.#peakReserved = Math.max(this.#peakReserved, this.#reserved);
    this.#deviceAllocations += 1;
    return block;
  }

  #releaseCached(): void {
    const kept = this.#segments.filter(({ blocks }) => blocks.length > 1 || blocks[0]?.free === false);
    this.#deviceFrees += this.#segments.length - kept.length;
    this.#segments = kept;
    this.#reserved = kept.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  #split(block: Block, bytes: number): void {
    const left = block.bytes - bytes;
    const worthSplitting = block.segment.small
      ? left >= this.#rules.roundBytes
      : left > this.#rules.smallRequestBytes;
    if (!worthSplitting) return;
    const { blocks } = block.segment;
    blocks.splice(blocks.indexOf(block) + 1, 0, {
      segment: block.segment,
      offset: block.offset + bytes,
      bytes: left,
      free: true,
    });
    block.bytes = bytes;
  }
}
