#include "ops/attention_operator.h"

namespace internevo::test {
namespace {

TEST(Attention, GroupedQueriesOddSizes) { expectAll(Attention({2, 23, 4, 2, 10})); }
TEST(Attention, OneToken) { expectKernelIsReference(Attention({1, 1, 2, 1, 8})); }

TEST(Attention, SeveralTilesWithARemainder) {
  const Attention op({1, 96 * 2 + 31, 2, 1, 24});
  expectKernelIsReference(op);
  expectBfloat16IsAsGoodAsPlain(op);
  expectBitsIndependentOfThreads(op);
}

TEST(Attention, ExactlyWholeTiles) { expectKernelIsReference(Attention({2, 96 * 2, 3, 3, 64})); }

// With scores of about 1000 the softmax is all but one-hot, and the gradients of q and k are what is left when numbers
// of size |gO|·|v|·|k| ≈ 100 cancel.
TEST(Attention, LargeScoresStayFinite) { expectKernelIsReference(Attention({1, 130, 1, 1, 16}, 30.0), 3e-4); }

TEST(Attention, QueryKeyValueInOneFusedBuffer) {
  const reference::Attention s{2, 100, 4, 2, 16};
  const std::int64_t q = s.heads * s.headSize, kv = s.kvHeads * s.headSize, width = q + 2 * kv, rows = 200;
  const Attention dense(s);
  Values fused(rows * width);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(dense.inputs[0].begin() + r * q, q, fused.begin() + r * width);
    std::copy_n(dense.inputs[1].begin() + r * kv, kv, fused.begin() + r * width + q);
    std::copy_n(dense.inputs[2].begin() + r * kv, kv, fused.begin() + r * width + q + kv);
  }
  const Values gO = randomValues(rows * q, 9);
  const KernelResult expected = runKernel(dense, DataType::float32, dense.inputs, {gO}, 1);

  const auto backend = createTestBackend(1);
  const AttentionShape shape{2, 100, 4, 2, 16, width, width, width, 0};
  const Buffer in(DataType::float32, fused), gIn(DataType::float32, Values(rows * width)),
      g(DataType::float32, gO);
  const Buffer out(DataType::float32, Values(rows * q)), lse(DataType::float32, Values(2 * 4 * 100)),
      scratch(backend->attentionWorkspaceBytes(shape));
  const View x = in.view(), gX = gIn.view();
  ASSERT_TRUE(backend
                  ->attentionForward(shape, x, x.offset(q), x.offset(q + kv), out.view(), lse.view(),
                                     scratch.workspace())
                  .ok());
  ASSERT_TRUE(backend
                  ->attentionBackward(shape, x, x.offset(q), x.offset(q + kv), out.view(), lse.view(),
                                      g.view(), gX, gX.offset(q), gX.offset(q + kv), scratch.workspace())
                  .ok());
  EXPECT_EQ(out.values(), expected.outputs[0]);
  const Values result = gIn.values();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < q; ++i) ASSERT_EQ(result[r * width + i], expected.gradients[0][r * q + i]);
    for (std::int64_t i = 0; i < kv; ++i) {
      ASSERT_EQ(result[r * width + q + i], expected.gradients[1][r * kv + i]);
      ASSERT_EQ(result[r * width + q + kv + i], expected.gradients[2][r * kv + i]);
    }
  }
}

TEST(Attention, HeadsSplitAmongRanksGiveTheSameBits) {
  const Attention whole({1, 110, 4, 2, 16});
  const Values gO = randomValues(110 * 64, 9);
  const KernelResult all = runKernel(whole, DataType::float32, whole.inputs, {gO}, 1);
  const auto take = [](const Values& x, std::int64_t heads, std::int64_t first, std::int64_t count) {
    Values part;
    for (std::int64_t t = 0; t < 110; ++t) {
      part.insert(part.end(), x.begin() + (t * heads + first) * 16,
                  x.begin() + (t * heads + first + count) * 16);
    }
    return part;
  };
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const Attention part({1, 110, 2, 1, 16});
    const KernelResult own = runKernel(part, DataType::float32,
                                       {take(whole.inputs[0], 4, 2 * rank, 2),
                                        take(whole.inputs[1], 2, rank, 1), take(whole.inputs[2], 2, rank, 1)},
                                       {take(gO, 4, 2 * rank, 2)}, 1);
    EXPECT_EQ(own.outputs[0], take(all.outputs[0], 4, 2 * rank, 2));
    EXPECT_EQ(own.gradients[0], take(all.gradients[0], 4, 2 * rank, 2));
    EXPECT_EQ(own.gradients[1], take(all.gradients[1], 2, rank, 1));
  }
}

TEST(Attention, WorkspaceGrowsLinearlyWithTheSequence) {
  const auto backend = createTestBackend(1);
  const std::int64_t small = backend->attentionWorkspaceBytes({1, 9600, 4, 4, 64});
  const std::int64_t large = backend->attentionWorkspaceBytes({1, 96000, 4, 4, 64});
  EXPECT_LE(large, 10 * small);
}

TEST(Attention, RefusesHeadsThatDoNotDivide) {
  const auto backend = createTestBackend(1);
  const Buffer x(DataType::float32, Values(1024));
  const Status status = backend->attentionForward({1, 4, 3, 2, 8}, x.view(), x.view(), x.view(), x.view(),
                                                  x.view(), x.workspace());
  EXPECT_EQ(status.code(), StatusCode::badConfig);
  EXPECT_NE(status.message().find("heads is 3"), std::string::npos) << status.message();
}

// ---- windows -------------------------------------------------------------------------------------------------------

reference::Attention windowed(reference::Attention shape, std::int64_t window) {
  shape.window = window;
  return shape;
}

TEST(AttentionWindow, OddSizes) {
  expectAll(Attention(windowed({2, 23, 4, 2, 10}, 5)));
  expectAll(Attention(windowed({1, 23, 2, 2, 12}, 2)));
}

TEST(AttentionWindow, OfOneKeyIsItsValue) {
  const Attention op(windowed({1, 200, 2, 2, 16}, 1));
  const KernelResult result = runKernel(op, DataType::float32, op.inputs, {randomValues(200 * 32, 5)}, 1);
  EXPECT_EQ(result.outputs[0], roundedTo(op.inputs[2], DataType::float32));
}

TEST(AttentionWindow, EndsInsideAndAtTheEdgesOfTiles) {
  for (const std::int64_t window : {40, 96, 97, 200}) {
    const Attention op(windowed({1, 96 * 3 + 31, 2, 1, 24}, window));
    expectKernelIsReference(op);
    expectBfloat16IsAsGoodAsPlain(op);
    expectBitsIndependentOfThreads(op);
  }
}

TEST(AttentionWindow, OfWholeSequencesGivesTheBitsOfNone) {
  for (const DataType type : {DataType::float32, DataType::bfloat16}) {
    const Attention all({2, 230, 4, 2, 32}), window(windowed({2, 230, 4, 2, 32}, 230));
    const Tuple inputs = roundedTo(all.inputs, type), gO = gradientsOfOutputs(all, type);
    const KernelResult a = runKernel(all, type, inputs, gO, 1), b = runKernel(window, type, inputs, gO, 1);
    EXPECT_EQ(a.outputs, b.outputs);
    EXPECT_EQ(a.gradients, b.gradients);
  }
}

TEST(AttentionWindow, IsTheFirstKeysThatItMeans) {
  INTERNEVO_HOST_ONLY();
  const std::int64_t length = 300, window = 70;
  for (const DataType type : {DataType::float32, DataType::bfloat16}) {
    const Attention by(windowed({1, length, 2, 1, 32}, window));
    reference::Attention shape{1, length, 2, 1, 32};
    for (std::int64_t row = 0; row < length; ++row)
      shape.firstKeys.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(0, row + 1 - window)));
    const Tuple inputs = roundedTo(by.inputs, type), gO = gradientsOfOutputs(by, type);
    const KernelResult a = runKernel(by, type, inputs, gO, 1),
                       b = runKernel(Attention(shape), type, inputs, gO, 1);
    EXPECT_EQ(a.outputs, b.outputs);
    EXPECT_EQ(a.gradients, b.gradients);
  }
}

TEST(AttentionWindow, ThatIsNegativeIsRefused) {
  const auto backend = createTestBackend(1);
  AttentionShape shape{1, 4, 1, 1, 8};
  const Buffer x(DataType::float32, Values(32)), state(DataType::float32, Values(4));
  const Buffer scratch(backend->attentionWorkspaceBytes(shape));
  shape.window = -1;
  const Status status = backend->attentionForward(shape, x.view(), x.view(), x.view(), x.view(), state.view(),
                                                  scratch.workspace());
  EXPECT_EQ(status.code(), StatusCode::badConfig);
  EXPECT_NE(status.message().find("window is -1"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace internevo::test
