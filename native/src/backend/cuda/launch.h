// Starts kernels: on the stream of a Queue, or, compiled without CUDA, on the model of a device.
#pragma once

#include "backend/cuda/queue.h"
#include "backend/cuda/tensor_box.h"

namespace internevo::cuda {

/// Blocks in three dimensions, threads of a block in one. sharedBytes: dynamic shared memory of a block.
struct Grid {
  std::int64_t x = 1, y = 1, z = 1;
  int sharedBytes = 0;
};

}  // namespace internevo::cuda

#ifdef __CUDACC__
#include "backend/cuda/launch_device.h"
#else
#include "emulator/launch_model.h"
#endif

namespace internevo::cuda {

/// Blocks for so many pieces of work that each takes `each` of; at most kBlocks: kernels go on in strides of the grid.
constexpr std::int64_t kBlocks = 4096;
inline std::int64_t blocksFor(std::int64_t pieces, std::int64_t each) {
  const std::int64_t blocks = (pieces + each - 1) / each;
  return blocks < 1 ? 1 : blocks > kBlocks ? kBlocks : blocks;
}

// ---- sums and maxima of a warp and of a block, in one order ----------------------------------------------------------

template <class Thread, typename T>
INTERNEVO_DEVICE T warpSum(Thread& t, T value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += t.shuffleXor(value, mask);
  return value;
}
template <class Thread>
INTERNEVO_DEVICE float warpMaximum(Thread& t, float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = larger(value, t.shuffleXor(value, mask));
  return value;
}

/// Every thread gets the result. `scratch`: shared, one T a warp; it may be used again after the next sync.
template <class Thread, typename T>
INTERNEVO_DEVICE T blockSum(Thread& t, T value, T* scratch) {
  value = warpSum(t, value);
  if (t.x() % kWarp == 0) scratch[t.x() / kWarp] = value;
  t.sync();
  T total = scratch[0];
  for (int warp = 1; warp < t.threads() / kWarp; ++warp) total += scratch[warp];
  t.sync();
  return total;
}
template <class Thread>
INTERNEVO_DEVICE float blockMaximum(Thread& t, float value, float* scratch) {
  value = warpMaximum(t, value);
  if (t.x() % kWarp == 0) scratch[t.x() / kWarp] = value;
  t.sync();
  float result = scratch[0];
  for (int warp = 1; warp < t.threads() / kWarp; ++warp) result = larger(result, scratch[warp]);
  t.sync();
  return result;
}

}  // namespace internevo::cuda
