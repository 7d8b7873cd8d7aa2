// Splitting of an operator's work among the threads of one rank.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace internevo::cpu {

/// body(begin, end, thread) over [0, count) in at most `threads` contiguous parts, whose borders are multiples of
/// `grain`. Runs on the calling thread when there is one part.
template <typename Body>
void parallelRanges(int threads, std::int64_t count, std::int64_t grain, const Body& body) {
  const std::int64_t grains = (count + grain - 1) / grain;
  const int parts = static_cast<int>(std::max<std::int64_t>(1, std::min<std::int64_t>(threads, grains)));
  if (parts == 1) {
    body(std::int64_t{0}, count, 0);
    return;
  }
#pragma omp parallel num_threads(parts)
  {
    const int team = omp_get_num_threads();  // may be fewer than asked for
    const int thread = omp_get_thread_num();
    const std::int64_t begin = std::min(count, grains * thread / team * grain);
    const std::int64_t end = std::min(count, grains * (thread + 1) / team * grain);
    if (begin < end) body(begin, end, thread);
  }
}

}  // namespace internevo::cpu
