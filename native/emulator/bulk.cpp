// Barriers in memory, bulk copies, named barriers and registers of the model (PTX ISA 9.7.13.15, 9.7.9.27, 9.7.13.1, 9.7.19.5).
//
// Found: a phase that a thread waits for twice or that never comes; more arrivals than a barrier was made for; bytes that are not
// those expected (a wait forever); barriers that are used before they were published; boxes and tensors that the copy engine does
// not take, or a box that leaves shared memory; ordinary stores that a copy or a product reads without fence.proxy.async; flags that
// are set before what they announce is written; named barriers met by different numbers of threads; register counts that the
// multiprocessor does not have.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "backend/cuda/launch.h"
#include "emulator/running.h"

namespace internevo::cuda {

namespace model {

namespace {

constexpr int kRegistersOfBlock = 65536, kGroup = 128;

struct MapOfModel {
  const unsigned char* data;
  std::int64_t extent[4], stride[3];
  std::int32_t box[4];
};
static_assert(sizeof(MapOfModel) <= sizeof(TensorMap));

/// A box of a tensor, or `bytes` as they stand.
struct TileCopy {
  unsigned char* target;
  std::int64_t bytes;
  MapOfModel map;
  std::array<int, 4> at;
};
struct Barrier {
  int count = 0, pending = 0, owner = 0;
  std::int64_t bytes = 0, completed = 0;
  bool published = false;
  std::map<int, std::int64_t> seen;  // thread -> newest phase it waited for
  std::vector<TileCopy> copies;      // not yet performed
};
struct Reduction {
  float* target;
  const unsigned char* source;
  int bytes;
  bool add, taken = false;
  std::vector<float> values;
};
struct Thread {
  std::vector<std::vector<Reduction>> groups;
  std::vector<Reduction> open;
  std::vector<std::size_t> written;  // words of shared memory
  bool acquired = false;
};
struct Named {
  int threads = 0, arrived = 0;
  std::int64_t generation = 0;
};
struct Registers {
  int now = 0;
  int calls = 0;
};

std::map<const MemoryBarrier*, Barrier> barriers;
std::vector<Thread> threads;
std::vector<int> writers;  // of a word by ordinary stores, plus 1; 0: none, or fenced
std::int64_t unfenced = 0;
std::array<Named, 16> named;
std::vector<Registers> registers;

/// Of a thread at the start, where the kernel's bound is one block a multiprocessor: warpgroups share out these and no more (PTX ISA
/// 9.7.19.5: setmaxnreg waits for registers of the pool that the block was started with).
int launchRegisters(int count) { return std::min(kRegistersOfBlock / std::max(count, 1) / 8 * 8, 248); }

Thread& self() { return threads[static_cast<std::size_t>(currentThread())]; }

Barrier& barrierAt(const MemoryBarrier* at) {
  const auto found = barriers.find(at);
  if (found == barriers.end()) failBlock("a barrier is used that was never made");
  if (!found->second.published && found->second.owner != currentThread())
    failBlock("a barrier is used before it was published");
  return found->second;
}

void completeIfDue(Barrier& b) {
  if (b.pending < 0) failBlock("more threads arrive at a barrier than it was made for");
  if (b.pending != 0 || b.bytes != 0) return;
  b.pending = b.count, ++b.completed;
  noteProgress();
}

std::int64_t boxBytes(const MapOfModel& map) {
  return std::int64_t{2} * map.box[0] * map.box[1] * map.box[2] * map.box[3];
}

/// 128-byte swizzle: bits 4–6 of an address are exchanged by its bits 7–9 (the pattern begins at 1024 bytes).
void perform(const TileCopy& c) {
  if (c.map.box[0] == 0) {
    std::memcpy(c.target, c.map.data, static_cast<std::size_t>(c.bytes));
    return;
  }
  std::int64_t place = 0;
  for (int i3 = 0; i3 < c.map.box[3]; ++i3) {
    for (int i2 = 0; i2 < c.map.box[2]; ++i2) {
      for (int i1 = 0; i1 < c.map.box[1]; ++i1) {
        for (int i0 = 0; i0 < c.map.box[0]; ++i0, place += 2) {
          const std::int64_t at[4] = {c.at[0] + i0, c.at[1] + i1, c.at[2] + i2, c.at[3] + i3};
          bool inside = true;
          std::int64_t offset = 2 * at[0];
          for (int d = 0; d < 4; ++d) inside = inside && at[d] >= 0 && at[d] < c.map.extent[d];
          for (int d = 1; d < 4; ++d) offset += at[d] * c.map.stride[d - 1];
          const std::int64_t swizzled = place ^ (place >> 7 & 7) << 4;
          if (inside) {
            std::memcpy(c.target + swizzled, c.map.data + offset, 2);
          } else {
            std::memset(c.target + swizzled, 0, 2);
          }
        }
      }
    }
  }
}

void take(Reduction& r) {
  if (r.taken) return;
  requireFenced(sharedAddressOf(r.source, r.bytes), r.bytes, "a bulk copy");
  r.values.resize(static_cast<std::size_t>(r.bytes / 4));
  std::memcpy(r.values.data(), r.source, static_cast<std::size_t>(r.bytes));
  r.taken = true;
}
void perform(Reduction& r) {
  take(r);
  for (std::size_t i = 0; i < r.values.size(); ++i)
    r.target[i] = r.add ? r.target[i] + r.values[i] : r.values[i];
}

}  // namespace

void beginBulk(int count) {
  barriers.clear();
  threads.assign(static_cast<std::size_t>(count), {});
  writers.assign(static_cast<std::size_t>(sharedMemoryBytes() / 4 + 1), 0);
  unfenced = 0;
  named = {};
  registers.assign(static_cast<std::size_t>((count + kGroup - 1) / kGroup), {launchRegisters(count), 0});
}

void endBulk() {
  for (const auto& entry : barriers) {
    if (!entry.second.copies.empty() || entry.second.bytes != 0)
      failBlock("a block ends while copies to it are under way");
  }
  for (const Thread& t : threads) {
    if (!t.open.empty() || !t.groups.empty()) failBlock("a block ends while copies out of it are under way");
  }
  int total = 0;
  const int pool = launchRegisters(static_cast<int>(threads.size())) * static_cast<int>(threads.size());
  for (const Registers& r : registers) {
    if (r.calls % kGroup != 0) failBlock("not all threads of a warpgroup set their registers");
    total += kGroup * r.now;
  }
  if (registers.size() * kGroup == threads.size() && total > pool) {
    failBlock("warpgroups take " + std::to_string(total) + " registers, and the block was started with " +
              std::to_string(pool));
  }
  for (const Named& n : named) {
    if (n.arrived != 0) failBlock("a block ends with threads at a named barrier that never filled");
  }
}

void initBarrier(MemoryBarrier* at, int count) {
  if (sharedAddressOf(at, 8) % 8 != 0) failBlock("a barrier is not aligned to 8 bytes");
  if (count < 1 || barriers.count(at) != 0) failBlock("a barrier is made twice, or for nobody");
  Barrier& b = barriers[at];
  b.count = b.pending = count, b.owner = currentThread();
}
void publishBarriers() {
  for (auto& entry : barriers) {
    if (entry.second.owner == currentThread()) entry.second.published = true;
  }
}

void arriveBarrier(MemoryBarrier* at, int expectedBytes) {
  Barrier& b = barrierAt(at);
  b.bytes += expectedBytes;
  --b.pending;
  noteProgress();
  completeIfDue(b);
}

void waitBarrier(MemoryBarrier* at, int parity) {
  if (parity != 0 && parity != 1) failBlock("a phase's parity is neither 0 nor 1");
  for (;;) {
    Barrier& b = barrierAt(at);
    const std::int64_t newest = b.completed - 1;  // −1: before the first, whose parity reads as 1
    if ((newest & 1) == parity) {
      const auto [place, first] = b.seen.try_emplace(currentThread(), newest);
      if (!first && place->second >= newest) failBlock("a thread waits for a phase of a barrier twice");
      place->second = newest;
      return;
    }
    std::vector<TileCopy> due;
    due.swap(b.copies);
    for (const TileCopy& c : due) {
      perform(c);
      b.bytes -= c.bytes;
      noteProgress();
    }
    if (!due.empty()) {
      completeIfDue(b);
      continue;
    }
    noteWait("for a barrier in shared memory");
    yieldThread();
  }
}

namespace {

void start(Barrier& b, const TileCopy& c) {
  if (!b.published) failBlock("a barrier is used before it was published");
  std::memset(c.target, 0xff, static_cast<std::size_t>(c.bytes));  // NaN until it is waited for
  noteProgress();
  if (orderOfRun() != 1) {
    b.copies.push_back(c);
    return;
  }
  perform(c);
  b.bytes -= c.bytes;
  completeIfDue(b);
}

}  // namespace

void copyTile(void* target, const TensorMap* map, MemoryBarrier* at, const int (&from)[4]) {
  TileCopy c{static_cast<unsigned char*>(target), 0, {}, {from[0], from[1], from[2], from[3]}};
  std::memcpy(&c.map, map, sizeof c.map);
  c.bytes = boxBytes(c.map);
  if (sharedAddressOf(target, c.bytes) % 1024 != 0)
    failBlock("a tile's place is not aligned to the 1024 bytes of its swizzle");
  start(barrierAt(at), c);
}
void copyBulk(void* target, const void* source, int bytes, MemoryBarrier* at) {
  if (sharedAddressOf(target, bytes) % 16 != 0 || reinterpret_cast<std::uintptr_t>(source) % 16 != 0 ||
      bytes % 16 != 0) {
    failBlock("a bulk copy is not aligned to 16 bytes");
  }
  start(barrierAt(at), {static_cast<unsigned char*>(target),
                        bytes,
                        {static_cast<const unsigned char*>(source), {}, {}, {}},
                        {}});
}

void reduceBulk(float* target, const void* source, int bytes, bool add) {
  Thread& t = self();
  if (sharedAddressOf(source, bytes) % 16 != 0 || reinterpret_cast<std::uintptr_t>(target) % 16 != 0 ||
      bytes % 16 != 0) {
    failBlock("a bulk copy is not aligned to 16 bytes");
  }
  if (t.acquired) failBlock("a bulk copy follows a flag of another block without fence.proxy.async");
  t.open.push_back({target, static_cast<const unsigned char*>(source), bytes, add, false, {}});
  if (orderOfRun() == 1) take(t.open.back());
}
void commitBulk() {
  self().groups.push_back(std::move(self().open));
  self().open.clear();
}
void waitBulk(int newest, bool readOnly) {
  Thread& t = self();
  const std::size_t due = t.groups.size() - std::min(t.groups.size(), static_cast<std::size_t>(newest));
  for (std::size_t i = 0; i < due; ++i) {
    for (Reduction& r : t.groups[i]) {
      if (readOnly) {
        take(r);
      } else {
        perform(r);
      }
    }
  }
  if (!readOnly) t.groups.erase(t.groups.begin(), t.groups.begin() + static_cast<std::ptrdiff_t>(due));
}

void storeSharedBytes(void* target, const void* value, int bytes) {
  const std::uint32_t address = sharedAddressOf(target, bytes);
  if (address % static_cast<std::uint32_t>(bytes) != 0) failBlock("a store is not aligned to its size");
  std::memcpy(target, value, static_cast<std::size_t>(bytes));
  const auto first = static_cast<std::size_t>((static_cast<unsigned char*>(target) - sharedMemory()) / 4);
  for (std::size_t i = first; i < first + static_cast<std::size_t>(bytes) / 4; ++i) {
    unfenced += writers[i] == 0;
    writers[i] = currentThread() + 1;
    self().written.push_back(i);
  }
}
void fenceProxy() {
  Thread& t = self();
  for (const std::size_t i : t.written) {
    if (writers[i] != currentThread() + 1) continue;
    writers[i] = 0;
    --unfenced;
  }
  t.written.clear();
  t.acquired = false;
}
void requireFenced(std::uint32_t address, std::int64_t bytes, const char* reader) {
  if (unfenced == 0) return;
  const std::int64_t at = sharedByte(address) - sharedMemory();
  for (std::int64_t i = at / 4; i < (at + bytes + 3) / 4; ++i) {
    if (writers[static_cast<std::size_t>(i)] != 0) {
      failBlock(std::string(reader) + " reads what was stored without fence.proxy.async");
    }
  }
}

void namedBarrier(int id, int count, bool wait) {
  if (id < 1 || id > 15) failBlock("a named barrier's number is not in 1..15");
  if (count <= 0 || count % kWarp != 0) failBlock("a named barrier is for whole warps");
  Named& n = named[static_cast<std::size_t>(id)];
  if (n.arrived > 0 && n.threads != count)
    failBlock("threads meet at a named barrier for different numbers of threads");
  n.threads = count;
  noteProgress();
  const std::int64_t generation = n.generation;
  if (++n.arrived == count) {
    n.arrived = 0, ++n.generation;
    return;
  }
  while (wait && n.generation == generation) {
    noteWait("at a named barrier");
    yieldThread();
  }
}

void setRegisters(int count, bool more) {
  if (count < 24 || count > 256 || count % 8 != 0)
    failBlock("a register count is not a multiple of 8 in 24..256");
  Registers& r = registers[static_cast<std::size_t>(currentThread() / kGroup)];
  if (r.calls % kGroup == 0) {
    if (more ? count < r.now : count > r.now) failBlock("setmaxnreg goes the other way");
    r.now = count;
  } else if (r.now != count) {
    failBlock("threads of a warpgroup set different register counts");
  }
  ++r.calls;
}

std::int32_t WarpgroupInstructions::loadAcquire(const std::int32_t* source) {
  self().acquired = true;
  noteWait("for a flag that no block before this one sets");
  yieldThread();
  return *source;
}
void requireWritten() {
  if (!self().open.empty() || !self().groups.empty())
    failBlock("a flag is set before what it announces is written");
}

}  // namespace model

Status makeTensorMap(const TensorBox& tensor, TensorMap* map) {
  model::MapOfModel m{static_cast<const unsigned char*>(tensor.data), {}, {}, {}};
  const auto refuse = [](const std::string& what) {
    return Status{StatusCode::badConfig, "a tensor for bulk copies: " + what};
  };
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % 16 != 0)
    return refuse("its address is no multiple of 16");
  for (int i = 0; i < 4; ++i) {
    m.extent[i] = tensor.extent[i], m.box[i] = tensor.box[i];
    if (m.extent[i] < 1 || m.extent[i] > std::int64_t{1} << 32) return refuse("an extent is not in 1..2^32");
    if (m.box[i] < 1 || m.box[i] > 256) return refuse("a side of its box is not in 1..256");
  }
  if (m.box[0] != 64) return refuse("a row of its box is not the 128 bytes of the swizzle");
  for (int i = 0; i < 3; ++i) {
    m.stride[i] = tensor.strideBytes[i];
    if (m.stride[i] % 16 != 0 || m.stride[i] < 0 || m.stride[i] >= std::int64_t{1} << 40) {
      return refuse("a stride is no multiple of 16 below 2^40");
    }
  }
  *map = {};
  std::memcpy(map, &m, sizeof m);
  return Status::success();
}

}  // namespace internevo::cuda
