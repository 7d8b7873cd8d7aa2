// The model of a device: every thread of a block is a coroutine on the CPU and runs the kernel's own code. It stops where it
// waits for others, so barriers, shuffles and matrix fragments mean what they mean on a device.
//
// What it finds: wrong indices, masks, fragment layouts; threads that miss a barrier or meet in different collectives of a
// warp; asynchronous copies that are read before they were waited for, or overwrite what is still read; races between
// barriers, when runs in different orders of threads differ.
// What it does not: speed, the memory model between blocks, registers, and what the hardware's approximations round.
#pragma once

#include <cstring>
#include <functional>

#include "backend/cuda/launch.h"
#include "emulator/model_memory.h"
#include "emulator/warpgroup.h"

namespace internevo::cuda {

namespace model {

/// In which order the threads of a block take turns: 0 upwards, 1 downwards, 2 mixed. Asynchronous copies happen as late as they
/// may, with 1 as early.
void setThreadOrder(int order);

/// The block that is running; blocks run one after the other.
class Block {
 public:
  /// Runs body(thread) for every thread. Errors: internal when threads wait for one another forever.
  static Status run(int threads, int sharedBytes, const std::function<void(int)>& body);

  static unsigned char* shared();
  static void sync();
  /// One collective of a warp: `kind` tells apart what lanes mean. Each lane's `bytes` at `mine` are shown to all:
  /// `finish(slots)` runs once when all lanes are there, slots[lane] = that lane's pointer.
  static void warpCollective(int kind, void* mine, const std::function<void(void** slots)>& finish);
  static void queueCopy(void* target, const void* source, bool valid);
  static void commitCopies();
  static void waitCopies(int newest);
};

void multiplyFragments(void** slots);
void loadMatrixFragments(void** slots, bool transposed);

struct MultiplyLane {
  float d[4];
  std::uint32_t a[4], b[2];
};
struct LoadLane {
  std::uint32_t r[4];
  const void* row;
};

}  // namespace model

class ModelThread : public model::WarpgroupInstructions {
 public:
  ModelThread(int x, int threads, std::int64_t bx, std::int64_t by, std::int64_t bz, std::int64_t gx)
      : x_(x), threads_(threads), bx_(bx), by_(by), bz_(bz), gx_(gx) {}
  int x() const { return x_; }
  int threads() const { return threads_; }
  std::int64_t blockX() const { return bx_; }
  std::int64_t blockY() const { return by_; }
  std::int64_t blockZ() const { return bz_; }
  std::int64_t gridX() const { return gx_; }

  void sync() { model::Block::sync(); }
  void syncWarp() {
    model::Block::warpCollective(5, nullptr, [](void**) {});
  }
  template <typename T>
  T shuffleXor(T value, int mask) {
    model::touchRegisters();
    struct Lane {
      T value;
      int mask, lane;
    } mine{value, mask, x_ % kWarp};
    model::Block::warpCollective(1, &mine, [](void** slots) {
      T values[kWarp];
      for (int i = 0; i < kWarp; ++i) values[i] = static_cast<Lane*>(slots[i])->value;
      for (int i = 0; i < kWarp; ++i) {
        auto* const lane = static_cast<Lane*>(slots[i]);
        lane->value = values[lane->lane ^ lane->mask];
      }
    });
    return mine.value;
  }
  unsigned char* shared() { return model::Block::shared(); }
  void atomicAdd(std::int64_t* target, std::int64_t value) { *target += value; }
  float exponential2(float value) {
    model::touchRegisters();
    return std::exp2(value);
  }

  void multiply(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
    model::MultiplyLane mine{{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    model::Block::warpCollective(2, &mine, model::multiplyFragments);
    std::memcpy(d, mine.d, sizeof mine.d);
  }
  void loadMatrices(std::uint32_t (&r)[4], const void* row) { load(r, row, false); }
  void loadMatricesTransposed(std::uint32_t (&r)[4], const void* row) { load(r, row, true); }

  void copyAsync(void* target, const void* source, bool valid) {
    model::Block::queueCopy(target, source, valid);
  }
  void commitCopies() { model::Block::commitCopies(); }
  template <int Newest>
  void waitCopies() {
    model::Block::waitCopies(Newest);
  }

 private:
  void load(std::uint32_t (&r)[4], const void* row, bool transposed) {
    model::LoadLane mine{{}, row};
    model::Block::warpCollective(transposed ? 4 : 3, &mine, [transposed](void** slots) {
      model::loadMatrixFragments(slots, transposed);
    });
    std::memcpy(r, mine.r, sizeof mine.r);
  }

  int x_, threads_;
  std::int64_t bx_, by_, bz_, gx_;
};

template <class Kernel>
Status launch(const Queue& queue, const Grid& grid, const Kernel& kernel, const char* name) {
  return runOn(queue, name, [grid, kernel, name]() -> Status {
    const model::OpenMemory open;
    for (std::int64_t z = 0; z < grid.z; ++z) {
      for (std::int64_t y = 0; y < grid.y; ++y) {
        for (std::int64_t x = 0; x < grid.x; ++x) {
          const Status status = model::Block::run(Kernel::kThreads, grid.sharedBytes, [&](int thread) {
            ModelThread t(thread, Kernel::kThreads, x, y, z, grid.x);
            kernel(t);
          });
          if (!status.ok()) return {status.code(), std::string(name) + ": " + status.message()};
        }
      }
    }
    return Status::success();
  });
}

}  // namespace internevo::cuda
