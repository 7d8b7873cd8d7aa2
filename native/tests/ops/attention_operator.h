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
    shape.window = s.window;
    const Buffer scratch(backend.attentionWorkspaceBytes(shape));
    const Buffer logSumExp(DataType::float32, Values(s.batch * s.heads * s.sequence));
    INTERNEVO_RETURN_IF_ERROR(backend.attentionForward(shape, in[0].view(), in[1].view(), in[2].view(),
                                                       out[0].view(), logSumExp.view(), scratch.workspace()));
    return backend.attentionBackward(shape, in[0].view(), in[1].view(), in[2].view(), out[0].view(),
                                     logSumExp.view(), gOut[0].view(), gIn[0].view(), gIn[1].view(),
                                     gIn[2].view(), scratch.workspace());
  }
};

using Lengths = std::vector<std::int64_t>;

/// First keys of the rows of sequences made of documents of these lengths.
inline std::vector<std::int32_t> firstKeysOf(const std::vector<Lengths>& sequences) {
  std::vector<std::int32_t> result;
  for (const Lengths& lengths : sequences) {
    std::int64_t start = 0;
    for (const std::int64_t length : lengths) {
      result.insert(result.end(), static_cast<std::size_t>(length), static_cast<std::int32_t>(start));
      start += length;
    }
  }
  return result;
}

/// The whole as pieces cut at these positions, merged in an order that begins with a row's own piece.
class AttentionInPieces {
 public:
  AttentionInPieces(const Attention& op, std::vector<std::int64_t> cuts, DataType type)
      : s_(op.s),
        cuts_(std::move(cuts)),
        type_(type),
        q_(type, op.inputs[0]),
        k_(type, op.inputs[1]),
        v_(type, op.inputs[2]),
        o32_(DataType::float32, Values(op.inputs[0].size(), 7.)),
        o_(type, o32_.values()),
        lse_(DataType::float32, Values(static_cast<std::size_t>(s_.batch * s_.heads * s_.sequence), 7.)) {}

  KernelResult run(const Values& gOut) {
    const auto backend = createTestBackend(2);
    const std::int64_t pieces = static_cast<std::int64_t>(cuts_.size()) - 1;
    for (std::int64_t i = 0; i < pieces; ++i) {
      for (std::int64_t step = 0; step < pieces; ++step) {
        const std::int64_t j = (i + step) % pieces;
        const Piece p = piece(i, j);
        const Buffer scratch(backend->attentionBlockWorkspaceBytes(p.shape));
        const Status status = backend->attentionBlockForward(
            p.shape, q_.view().offset(p.q), k_.view().offset(p.k), v_.view().offset(p.k), step > 0,
            o32_.view().offset(p.q), lse_.view().offset(cuts_[i]), scratch.workspace());
        EXPECT_TRUE(status.ok()) << status.message();
      }
    }
    EXPECT_TRUE(backend->convert(static_cast<std::int64_t>(gOut.size()), o32_.view(), o_.view()).ok());
    const Buffer gO(type_, gOut), gQ(DataType::float32, Values(q_.values().size())),
        gK(DataType::float32, Values(k_.values().size())), gV(DataType::float32, Values(k_.values().size()));
    for (std::int64_t i = 0; i < pieces; ++i) {
      for (std::int64_t j = 0; j < pieces; ++j) {
        const Piece p = piece(i, j);
        const Buffer scratch(backend->attentionBlockWorkspaceBytes(p.shape));
        const Status status = backend->attentionBlockBackward(
            p.shape, q_.view().offset(p.q), k_.view().offset(p.k), v_.view().offset(p.k),
            o_.view().offset(p.q), lse_.view().offset(cuts_[i]), gO.view().offset(p.q), gQ.view().offset(p.q),
            gK.view().offset(p.k), gV.view().offset(p.k), scratch.workspace());
        EXPECT_TRUE(status.ok()) << status.message();
      }
    }
    return {{o_.values()}, {gQ.values(), gK.values(), gV.values()}};
  }

 private:
  struct Piece {
    AttentionBlockShape shape;
    std::int64_t q, k;
  };
  Piece piece(std::int64_t i, std::int64_t j) const {
    Piece p;
    p.shape.batch = s_.batch, p.shape.heads = s_.heads, p.shape.kvHeads = s_.kvHeads,
    p.shape.headSize = s_.headSize, p.shape.window = s_.window;
    p.shape.queryPosition = cuts_[i], p.shape.sequence = cuts_[i + 1] - cuts_[i];
    p.shape.keyPosition = cuts_[j], p.shape.keySequence = cuts_[j + 1] - cuts_[j];
    p.shape.queryBatchRows = p.shape.keyBatchRows = s_.sequence;
    if (!s_.firstKeys.empty())
      p.shape.firstKeys = ConstView(s_.firstKeys.data(), DataType::int32).offset(cuts_[i]);
    p.q = cuts_[i] * s_.heads * s_.headSize, p.k = cuts_[j] * s_.kvHeads * s_.headSize;
    return p;
  }

  reference::Attention s_;
  std::vector<std::int64_t> cuts_;
  DataType type_;
  Buffer q_, k_, v_, o32_, o_, lse_;
};

}  // namespace internevo::test
