// The threads of the running block, as coroutines that take turns.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "emulator/launch_model.h"
#include "emulator/running.h"

namespace internevo::cuda::model {

namespace {

constexpr std::size_t kStackBytes = 256 << 10;
constexpr unsigned char kPoison = 0xff;            // NaN in every floating-point type
constexpr std::uintptr_t kSharedAlignment = 1024;  // of the 128-byte swizzle's pattern
constexpr std::uint32_t kSharedBegin = 1024;       // of a block's dynamic memory in its window, as on sm_90

struct Copy {
  void* target;
  const void* source;
  bool valid;
};

struct Fiber {
  ucontext_t context{};
  jmp_buf resume{};
  std::vector<unsigned char> stack;
  bool started = false;  ///< its coroutine is there, and is kept from block to block
  bool done = false, atBarrier = false;
  std::vector<std::vector<Copy>> groups;  // committed, oldest first
  std::vector<Copy> open;
};

struct Warp {
  int kind = 0, arrived = 0;
  std::int64_t generation = 0;
  void* slots[kWarp] = {};
};

struct Running {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<unsigned char> memory;
  unsigned char* shared = nullptr;
  const std::function<void(int)>* body = nullptr;
  int threads = 0, current = 0, live = 0, waiting = 0;
  std::int64_t sharedBytes = 0;
  bool progressed = false;
  std::string problem;
  const char* waitingFor = nullptr;
  jmp_buf scheduler{};
};

Running* running = nullptr;
int threadOrder = 0;

[[noreturn]] void backToScheduler() { _longjmp(running->scheduler, 1); }

void yield() {
  if (_setjmp(running->fibers[static_cast<std::size_t>(running->current)].resume) == 0) backToScheduler();
}

void entry() {
  for (;;) {
    (*running->body)(running->current);
    Fiber& fiber = running->fibers[static_cast<std::size_t>(running->current)];
    fiber.done = true, running->progressed = true;
    --running->live;
    yield();  // goes on with the next block
  }
}

void resume(int thread) {
  Running& r = *running;
  Fiber& fiber = r.fibers[static_cast<std::size_t>(thread)];
  r.current = thread;
  if (_setjmp(r.scheduler) != 0) return;
  if (fiber.started) _longjmp(fiber.resume, 1);
  fiber.started = true;
  getcontext(&fiber.context);
  fiber.context.uc_stack = {fiber.stack.data(), 0, fiber.stack.size()};
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
  setcontext(&fiber.context);
}

void perform(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    if (copy.valid) {
      std::memcpy(copy.target, copy.source, 16);
    } else {
      std::memset(copy.target, 0, 16);
    }
  }
}

std::vector<int> orderOfThreads(int threads) {
  std::vector<int> order(static_cast<std::size_t>(threads));
  std::iota(order.begin(), order.end(), 0);
  if (threadOrder == 1) std::reverse(order.begin(), order.end());
  for (int i = 0; threadOrder == 2 && i < threads; ++i)
    order[static_cast<std::size_t>(i)] = (i * 37 + 11) % threads;
  return order;
}

}  // namespace

int currentThread() { return running->current; }
int threadsOfBlock() { return running->threads; }
int orderOfRun() { return threadOrder; }
void yieldThread() { yield(); }
void noteProgress() { running->progressed = true; }
void noteWait(const char* what) { running->waitingFor = what; }
void failBlock(const std::string& problem) {
  running->problem = problem;
  backToScheduler();
}
unsigned char* sharedMemory() { return running->shared; }
std::int64_t sharedMemoryBytes() { return running->sharedBytes; }
std::uint32_t sharedAddressOf(const void* pointer, std::int64_t bytes) {
  const std::int64_t at = static_cast<const unsigned char*>(pointer) - running->shared;
  if (at < 0 || at + bytes > running->sharedBytes)
    failBlock("an address is outside of the block's shared memory");
  return static_cast<std::uint32_t>(at) + kSharedBegin;
}
unsigned char* sharedByte(std::uint32_t address) {
  if (address < kSharedBegin || address - kSharedBegin >= running->sharedBytes) {
    failBlock("an operand reaches out of the block's shared memory");
  }
  return running->shared + (address - kSharedBegin);
}

void setThreadOrder(int order) { threadOrder = order; }

Status Block::run(int threads, int sharedBytes, const std::function<void(int)>& body) {
  static Running state;  // stacks are kept from block to block
  running = &state;
  Running& r = state;
  r.threads = threads;
  if (r.fibers.size() < static_cast<std::size_t>(threads)) r.fibers.resize(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = r.fibers[static_cast<std::size_t>(i)];
    if (fiber.stack.empty()) fiber.stack.resize(kStackBytes);
    fiber.started = fiber.started && fiber.done;  // a block that failed left it somewhere
    fiber.done = fiber.atBarrier = false;
    fiber.groups.clear(), fiber.open.clear();
  }
  r.warps.assign(static_cast<std::size_t>((threads + kWarp - 1) / kWarp), {});
  r.memory.assign(static_cast<std::size_t>(sharedBytes) + kSharedAlignment + 256, kPoison);
  const auto address = reinterpret_cast<std::uintptr_t>(r.memory.data());
  r.shared = r.memory.data() + (kSharedAlignment - address % kSharedAlignment) % kSharedAlignment;
  r.sharedBytes = sharedBytes;
  r.body = &body, r.live = threads, r.waiting = 0, r.problem.clear(), r.waitingFor = nullptr;
  beginBulk(threads), beginProducts(threads);
  const std::vector<int> order = orderOfThreads(threads);
  while (r.live > 0) {
    r.progressed = false, r.waitingFor = nullptr;
    for (const int thread : order) {
      const Fiber& fiber = r.fibers[static_cast<std::size_t>(thread)];
      if (!fiber.done && !fiber.atBarrier) resume(thread);
      if (!r.problem.empty()) return {StatusCode::internal, r.problem};
    }
    if (r.live > 0 && r.waiting == r.live) {
      if (r.live != threads)
        return {StatusCode::internal, "some threads ended while others wait at a barrier"};
      for (Fiber& fiber : r.fibers) fiber.atBarrier = false;
      r.waiting = 0, r.progressed = true;
    }
    if (!r.progressed) {
      const std::string what = r.waitingFor == nullptr ? "" : std::string(": ") + r.waitingFor;
      return {StatusCode::internal, "threads wait for one another forever" + what};
    }
  }
  if (_setjmp(r.scheduler) == 0) endBulk(), endProducts();
  if (!r.problem.empty()) return {StatusCode::internal, r.problem};
  for (std::int64_t at = r.shared - r.memory.data() + sharedBytes;
       at < static_cast<std::int64_t>(r.memory.size()); ++at) {
    if (r.memory[static_cast<std::size_t>(at)] != kPoison) {
      return {StatusCode::internal, "a thread wrote behind the block's shared memory"};
    }
  }
  return Status::success();
}

unsigned char* Block::shared() { return running->shared; }

void Block::sync() {
  Fiber& fiber = running->fibers[static_cast<std::size_t>(running->current)];
  fiber.atBarrier = true, running->progressed = true;
  ++running->waiting;
  yield();
}

void Block::warpCollective(int kind, void* mine, const std::function<void(void** slots)>& finish) {
  Running& r = *running;
  Warp& warp = r.warps[static_cast<std::size_t>(r.current / kWarp)];
  if (warp.arrived > 0 && warp.kind != kind) {
    r.problem = "lanes of a warp met in different collectives";
    backToScheduler();
  }
  warp.kind = kind;
  warp.slots[r.current % kWarp] = mine;
  r.progressed = true;
  const std::int64_t generation = warp.generation;
  if (++warp.arrived == kWarp) {
    finish(warp.slots);
    warp.arrived = 0;
    ++warp.generation;
    return;
  }
  while (warp.generation == generation) yield();
}

void Block::queueCopy(void* target, const void* source, bool valid) {
  if (reinterpret_cast<std::uintptr_t>(target) % 16 != 0 ||
      (valid && reinterpret_cast<std::uintptr_t>(source) % 16 != 0)) {
    running->problem = "an asynchronous copy is not aligned to its 16 bytes";
    backToScheduler();
  }
  const Copy copy{target, source, valid};
  if (threadOrder == 1) return perform({copy});
  running->fibers[static_cast<std::size_t>(running->current)].open.push_back(copy);
}

void Block::commitCopies() {
  Fiber& fiber = running->fibers[static_cast<std::size_t>(running->current)];
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
}

void Block::waitCopies(int newest) {
  Fiber& fiber = running->fibers[static_cast<std::size_t>(running->current)];
  while (fiber.groups.size() > static_cast<std::size_t>(newest)) {
    perform(fiber.groups.front());
    fiber.groups.erase(fiber.groups.begin());
  }
}

// ---- fragments, as the PTX manual lays them out ------------------------------------------------------------------------

namespace {

float half(std::uint32_t word, int which) {
  return floatFromBfloat16(static_cast<std::uint16_t>(word >> (16 * which)));
}

}  // namespace

/// mma.m16n8k16: with g = lane / 4, i = lane mod 4. a0: row g, columns 2i, 2i+1; a1: row g+8; a2: row g, columns 2i+8, 2i+9;
/// a3: row g+8, those. b0: rows 2i, 2i+1 of column g; b1: rows 2i+8, 2i+9. d0, d1: row g, columns 2i, 2i+1; d2, d3: row g+8.
void multiplyFragments(void** slots) {
  float a[16][16], b[16][8], d[16][8];
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto& m = *static_cast<const MultiplyLane*>(slots[lane]);
    const int g = lane / 4, i = lane % 4;
    for (int h = 0; h < 2; ++h) {
      a[g][2 * i + h] = half(m.a[0], h), a[g + 8][2 * i + h] = half(m.a[1], h);
      a[g][2 * i + 8 + h] = half(m.a[2], h), a[g + 8][2 * i + 8 + h] = half(m.a[3], h);
      b[2 * i + h][g] = half(m.b[0], h), b[2 * i + 8 + h][g] = half(m.b[1], h);
      d[g][2 * i + h] = m.d[h], d[g + 8][2 * i + h] = m.d[2 + h];
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      for (int k = 0; k < 16; ++k) d[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    auto& m = *static_cast<MultiplyLane*>(slots[lane]);
    const int g = lane / 4, i = lane % 4;
    for (int h = 0; h < 2; ++h) m.d[h] = d[g][2 * i + h], m.d[2 + h] = d[g + 8][2 * i + h];
  }
}

/// ldmatrix.x4: lane l gets of matrix j the elements 2i, 2i+1 of row g (transposed: of column g), g = l / 4, i = l mod 4.
void loadMatrixFragments(void** slots, bool transposed) {
  for (int lane = 0; lane < kWarp; ++lane) {
    auto& mine = *static_cast<LoadLane*>(slots[lane]);
    const int g = lane / 4, i = lane % 4;
    for (int j = 0; j < 4; ++j) {
      const auto element = [&](int row, int column) {
        const auto* const at =
            static_cast<const std::uint16_t*>(static_cast<const LoadLane*>(slots[8 * j + row])->row);
        return static_cast<std::uint32_t>(at[column]);
      };
      const std::uint32_t low = transposed ? element(2 * i, g) : element(g, 2 * i);
      const std::uint32_t high = transposed ? element(2 * i + 1, g) : element(g, 2 * i + 1);
      mine.r[j] = low | high << 16;
    }
  }
}

}  // namespace internevo::cuda::model
