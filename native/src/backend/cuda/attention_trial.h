// One pass of attention by ours and by a library, on the same operands: are the numbers the same, and who is faster?
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "internevo/memory_space.h"
#include "internevo/status.h"
#include "internevo/stopwatch.h"
#include "internevo/tensor.h"

namespace internevo::cuda {

/// `rows` rows of `width` elements, the next `stride` elements further on.
struct TrialTensor {
  const char* name = "";
  View view;
  std::int64_t rows = 0, width = 0, stride = 0;
};

struct TrialPass {
  std::function<Status()> own, library;
  std::vector<TrialTensor> outputs;
  bool sameBits = false;  ///< the library's own results must not differ from one call to the next
};

struct TrialResult {
  std::string refusal;  ///< why the library is not to be taken; empty: it may be
  double ownSeconds = 0, librarySeconds = 0;
};

/// bfloat16 rounds by 2^-9 at most, each side rounds probabilities and results, and early rows have few keys to average over: two right
/// ones differ by less than a third of this, a wrong tile by more.
constexpr double kBfloat16Difference = 1.0 / 32;
/// Statistics are float32 out of float32 scores.
constexpr double kFloat32Difference = 1.0 / 1024;

/// Fills with values in [-2, 2), the same on every rank; what lies between the rows too.
Status fillForTrial(MemorySpace& memory, const TrialTensor& tensor, std::uint32_t seed);

/// Compares ‖library − own‖ / ‖own‖ of pieces of every output, the first and the last rows among them, and times both in turn.
/// The outputs are then those of ours when the library was refused, else of either. Errors: those of ours, of memory and of the clock.
Status runTrial(MemorySpace& memory, Stopwatch& stopwatch, const TrialPass& pass, TrialResult* result);

}  // namespace internevo::cuda
