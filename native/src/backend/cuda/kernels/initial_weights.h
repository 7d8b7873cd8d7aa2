// Initial weights.
#pragma once

#include "backend/cuda/portable.h"
#include "backend/initial_weights.h"

namespace internevo::cuda {

struct InitialNormalKernel {
  static constexpr int kThreads = 256;
  InitialShape s;
  std::uint64_t key;
  double standardDeviation;
  float* target;

  template <class Thread>
  INTERNEVO_DEVICE void operator()(Thread& t) const {
    for (std::int64_t i = t.blockX() * kThreads + t.x(); i < s.elements; i += t.gridX() * kThreads) {
      const auto index = static_cast<std::uint64_t>(placeInWhole(s, s.first + i));
      target[i] = static_cast<float>(standardDeviation * randomNormal(key, index));
    }
  }
};

}  // namespace internevo::cuda
