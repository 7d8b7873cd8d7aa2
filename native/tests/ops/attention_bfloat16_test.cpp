// Attention in the instruction set's own bfloat16 arithmetic, both ways to multiply, where the machine has them.
#include "backend/attention_shape.h"
#include "backend/cpu/attention.h"
#include "ops/attention_operator.h"

namespace internevo::test {
namespace {

using cpu::Bfloat16Product;

KernelResult run(Bfloat16Product by, const reference::Attention& s, const Tuple& in, const Values& gOut,
                 int threads, bool* done) {
  AttentionBlockShape shape = wholeAttention({s.batch, s.sequence, s.heads, s.kvHeads, s.headSize});
  if (!s.firstKeys.empty()) shape.firstKeys = {s.firstKeys.data(), DataType::int32};
  EXPECT_TRUE(prepareAttention("attention", &shape).ok());
  constexpr DataType kType = DataType::bfloat16;
  const Buffer q(kType, in[0]), k(kType, in[1]), v(kType, in[2]), gO(kType, gOut),
      o(kType, Values(in[0].size()));
  const Buffer gQ(kType, Values(in[0].size(), 7.)), gK(kType, Values(in[1].size(), 7.)),
      gV(kType, Values(in[1].size(), 7.));
  const Buffer state(DataType::float32, Values(static_cast<std::size_t>(s.batch * s.heads * s.sequence)));
  const std::int64_t words = std::max(cpu::attentionForwardElements(s.sequence, s.headSize),
                                      cpu::attentionBackwardElements(s.sequence, s.headSize));
  const Buffer scratch(4 * threads * words);
  float* const logSumExp = state.view().as<float>();
  *done = cpu::attentionForwardBfloat16(by, shape, {q.view(), k.view(), v.view(), o.view(), logSumExp, false},
                                        threads, scratch.workspace()) &&
          cpu::attentionBackwardBfloat16(by, shape,
                                         {q.view(), k.view(), v.view(), o.view(), gO.view(), logSumExp,
                                          gQ.view(), gK.view(), gV.view(), false},
                                         threads, scratch.workspace());
  return {{o.values()}, {gQ.values(), gK.values(), gV.values()}};
}

/// Sizes around the tiles' borders, documents that begin and end inside squares, one after the other and longer than a tile.
TEST(AttentionBfloat16, BothWaysAreTheFormula) {
  const std::vector<reference::Attention> shapes = {
      {1, 1, 1, 1, 32, {}},
      {1, 33, 2, 2, 64, {}},
      {2, 96, 2, 1, 128, {}},
      {1, 200, 4, 2, 64, {}},
      {1, 97, 1, 1, 24, {}},
      {1, 130, 2, 1, 90, {}},
      {2, 290, 2, 1, 32, firstKeysOf({{1, 2, 30, 31, 32, 33, 161}, {95, 1, 96, 98}})},
      {1, 300, 2, 2, 64, firstKeysOf({{130, 1, 169}})}};
  for (const Bfloat16Product by : {Bfloat16Product::vectors, Bfloat16Product::tiles}) {
    if (by > cpu::bfloat16Product()) continue;
    for (const reference::Attention& shape : shapes) {
      Attention op(shape);
      op.inputs = roundedTo(op.inputs, DataType::bfloat16);
      const Tuple gOut = gradientsOfOutputs(op, DataType::bfloat16);
      const Tuple out = referenceForward<Attention, double>(op, op.inputs);
      const Tuple gIn = referenceBackward<Attention, double>(op, op.inputs, out, gOut);
      bool done = false;
      const KernelResult result = run(by, op.s, op.inputs, gOut[0], 1, &done);
      ASSERT_TRUE(done);
      const std::string at =
          std::to_string(op.s.sequence) + " tokens, heads of " + std::to_string(op.s.headSize);
      EXPECT_LE(rmsError(result.outputs[0], out[0]), 4e-3 * rootMeanSquare(out[0])) << at;
      // Where a query sees one key its gradients of q and k cancel to what the rounding of o leaves.
      const double least = op.s.sequence == 1 ? rootMeanSquare(gOut[0]) : 0;
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_LE(rmsError(result.gradients[i], gIn[i]), 5e-3 * std::max(rootMeanSquare(gIn[i]), least))
            << at << ", input " << i;
      const KernelResult many = run(by, op.s, op.inputs, gOut[0], 3, &done);
      EXPECT_EQ(many.outputs, result.outputs) << at;
      EXPECT_EQ(many.gradients, result.gradients) << at;
    }
  }
}

TEST(AttentionBfloat16, LargeScoresStayFinite) {
  for (const Bfloat16Product by : {Bfloat16Product::vectors, Bfloat16Product::tiles}) {
    if (by > cpu::bfloat16Product()) continue;
    const Attention op({1, 130, 1, 1, 32}, 30.0);
    const Tuple in = roundedTo(op.inputs, DataType::bfloat16),
                out = referenceForward<Attention, double>(op, in);
    bool done = false;
    const KernelResult result = run(by, op.s, in, randomValues(130 * 32, 5), 1, &done);
    ASSERT_TRUE(done);
    EXPECT_LE(rmsError(result.outputs[0], out[0]), 4e-3 * rootMeanSquare(out[0]));
    for (const Values& gradient : result.gradients) EXPECT_TRUE(std::isfinite(rootMeanSquare(gradient)));
  }
}

TEST(AttentionBfloat16, LeavesSmallHeadsAndOtherTypesAlone) {
  const Attention op({1, 40, 1, 1, 8});
  bool done = true;
  run(Bfloat16Product::vectors, op.s, op.inputs, Values(op.inputs[0].size()), 1, &done);
  EXPECT_FALSE(done);
}

}  // namespace
}  // namespace internevo::test
