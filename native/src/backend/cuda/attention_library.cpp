#include "backend/cuda/attention_library.h"

#include <cmath>

#include "backend/cuda/sizes_attention.h"

namespace internevo::cuda {

AttentionLayouts layoutsOf(const AttentionProblem& p) {
  const auto layout = [&](std::int64_t heads, std::int64_t stride) {
    return TensorLayout{{p.batch, heads, p.sequence, p.headSize},
                        {p.sequence * stride, p.headSize, stride, 1}};
  };
  return {layout(p.heads, p.queryStride),
          layout(p.kvHeads, p.keyStride),
          layout(p.kvHeads, p.valueStride),
          layout(p.heads, p.outputStride),
          {{p.batch, p.heads, p.sequence, 1}, {p.heads * p.sequence, p.sequence, 1, 1}}};
}

float scaleOf(const AttentionProblem& p) { return 1.f / std::sqrt(static_cast<float>(p.headSize)); }

std::string nameOf(const AttentionProblem& p) {
  return std::to_string(p.batch) + " x " + std::to_string(p.sequence) + " tokens, " +
         std::to_string(p.heads) + " heads of " + std::to_string(p.headSize) + ", " +
         std::to_string(p.kvHeads) + " of keys" +
         (p.window > 0 ? ", a window of " + std::to_string(p.window) : "");
}

bool libraryTakes(const AttentionArguments& a, std::initializer_list<ConstView> views) {
  bool takes = hasTensorKernels(a.headSize) && a.firstKeys == nullptr && a.ahead == 0 && a.keyPosition == 0 &&
               a.sequence == a.keySequence && a.queryBatchRows == a.sequence &&
               a.keyBatchRows == a.sequence && a.queryGradientStride == a.queryStride &&
               a.sequence >= kShortestForLibrary;
  for (const std::int64_t stride : {a.queryStride, a.keyStride, a.valueStride, a.outputStride})
    takes = takes && stride % 8 == 0;
  for (const ConstView& view : views) {
    takes = takes && view.type == DataType::bfloat16 && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
  }
  return takes;
}

AttentionProblem problemOf(const AttentionArguments& a, bool deterministic) {
  return {a.batch,     a.sequence,    a.heads,        a.kvHeads,     a.headSize, a.queryStride,
          a.keyStride, a.valueStride, a.outputStride, deterministic, a.window};
}

}  // namespace internevo::cuda
