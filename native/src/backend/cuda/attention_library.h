// Attention as a library computes it that takes tensors by extents and strides: cuDNN (device/cudnn_attention.cpp), and its meaning on
// the model of a device. Host code without CUDA.
#pragma once

#include <array>
#include <compare>
#include <initializer_list>
#include <string>

#include "backend/cuda/kernels/attention_arguments.h"
#include "backend/cuda/queue.h"
#include "internevo/status.h"
#include "internevo/tensor.h"

namespace internevo::cuda {

/// Causal attention of whole sequences in bfloat16; strides of rows in elements, those of gradients are those of what they are of.
struct AttentionProblem {
  std::int64_t batch = 0, sequence = 0, heads = 0, kvHeads = 0, headSize = 0;
  std::int64_t queryStride = 0, keyStride = 0, valueStride = 0, outputStride = 0;
  bool deterministic = true;  ///< gradients have the same bits every time
  std::int64_t window = 0;    ///< keys that a query sees at most, its own among them; 0: all before it
  auto operator<=>(const AttentionProblem&) const = default;
};

/// Element [batch, head, row, i] lies at the sum of index · stride.
struct TensorLayout {
  std::array<std::int64_t, 4> extent{}, stride{};
};
struct AttentionLayouts {
  TensorLayout q, k, v, o;
  TensorLayout logSumExp;  ///< float32, one a row
};
AttentionLayouts layoutsOf(const AttentionProblem& problem);

/// 1 / sqrt(headSize).
float scaleOf(const AttentionProblem& problem);

/// "2 x 4096 tokens, 32 heads of 128, 8 of keys".
std::string nameOf(const AttentionProblem& problem);

/// Shorter sequences have nothing to win.
constexpr std::int64_t kShortestForLibrary = 64;

/// A whole, as one document, of bfloat16 with heads of hasTensorKernels (sizes_attention.h) whose rows begin at multiples of 16
/// bytes. Which of these heads it takes is said by its release and the GPU.
bool libraryTakes(const AttentionArguments& a, std::initializer_list<ConstView> views);
AttentionProblem problemOf(const AttentionArguments& a, bool deterministic);

enum class AttentionPass { forward, backward };

/// Views as Backend's calls have them, for both passes; the forward one reads no gradient.
struct LibraryAttention {
  ConstView q, k, v;
  View o, logSumExp;
  ConstView gO;
  View gQ, gK, gV;
  Workspace scratch;  ///< of the bytes that were told
};

class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  /// With its version.
  virtual std::string name() const = 0;
  virtual std::string version() const = 0;
  /// Makes ready what computes the pass, once for a problem; `compute` makes nothing more. No more than `room` bytes of scratch memory.
  /// Errors: why the library does not serve it.
  virtual Status prepare(const AttentionProblem& problem, AttentionPass pass, std::int64_t roomBytes) = 0;
  /// Of what was prepared.
  virtual Status compute(const Queue& queue, const AttentionProblem& problem, AttentionPass pass,
                         const LibraryAttention& views) = 0;
};

}  // namespace internevo::cuda
