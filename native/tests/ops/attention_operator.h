// Attention as an operator under test (see support.h).
#pragma once

#include "backend/cpu/reference/reference.h"
#include "ops/support.h"

namespace internevo::test {

struct Attention {
  reference::Attention s;
  Tuple inputs, outputs;
  std::vector<bool> accumulated{false, false, false};

  explicit Attention(reference::Attention shape, double scale = 1.0)
      : s(shape),
        inputs{randomValues(s.batch * s.sequence * s.heads * s.headSize, 1, scale),
               randomValues(s.batch * s.sequence * s.kvHeads * s.headSize, 2, scale),
               randomValues(s.batch * s.sequence * s.kvHeads * s.headSize, 3)},
        outputs{Values(s.batch * s.sequence * s.heads * s.headSize)} {}

  template <typename T>
  void forward(const std::vector<std::vector<T>>& in, std::vector<std::vector<T>>& out) const {
    reference::attentionForward(s, in[0].data(), in[1].data(), in[2].data(), out[0].data());
  }
  template <typename T>
  void backward(const std::vector<std::vector<T>>& in, const std::vector<std::vector<T>>& out,
                const std::vector<std::vector<T>>& gOut, std::vector<std::vector<T>>& gIn) const {
    reference::attentionBackward(s, in[0].data(), in[1].data(), in[2].data(), out[0].data(), gOut[0].data(),
                                 gIn[0].data(), gIn[1].data(), gIn[2].data());
  }
  Status run(Backend& backend, std::vector<Buffer>& in, std::vector<Buffer>& out, std::vector<Buffer>& gOut,
             std::vector<Buffer>& gIn) const {
    AttentionShape shape{s.batch, s.sequence, s.heads, s.kvHeads, s.headSize};
    if (!s.firstKeys.empty()) shape.firstKeys = {s.firstKeys.data(), DataType::int32};
    const Buffer scratch(backend.attentionWorkspaceBytes(shape));
    const Buffer logSumExp(DataType::float32, Values(s.batch * s.heads * s.sequence));
    INTERNEVO_RETURN_IF_ERROR(backend.attentionForward(shape, in[0].view(), in[1].view(), in[2].view(), out[0].view(),
                                                       logSumExp.view(), scratch.workspace()));
    return backend.attentionBackward(shape, in[0].view(), in[1].view(), in[2].view(), out[0].view(),
                                     logSumExp.view(), gOut[0].view(), gIn[0].view(), gIn[1].view(), gIn[2].view(),
                                     scratch.workspace());
  }
};

}  // namespace internevo::test
