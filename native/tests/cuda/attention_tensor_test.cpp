// Attention on matrix instructions: bfloat16, heads of multiples of 8 up to 256. Index functions, fragments, masks, copies and barriers are
// those that a GPU runs.
#include "ops/attention_operator.h"

namespace internevo::test {
namespace {

class AttentionTensor : public testing::TestWithParam<reference::Attention> {};

TEST_P(AttentionTensor, IsAsGoodAsAPlainImplementation) {
  expectBfloat16IsAsGoodAsPlain(Attention(GetParam()));
}

/// What is not ordered by a barrier, a wait or a collective of a warp shows as other bits, or as the poison of fresh memory.
TEST_P(AttentionTensor, DoesNotDependOnTheOrderOfThreads) {
  const Attention op(GetParam());
  const Tuple inputs = roundedTo(op.inputs, DataType::bfloat16),
              gOut = gradientsOfOutputs(op, DataType::bfloat16);
  const KernelResult upwards = runKernel(op, DataType::bfloat16, inputs, gOut, 1);
  for (const int order : {2, 3}) {
    const KernelResult other = runKernel(op, DataType::bfloat16, inputs, gOut, order);
    EXPECT_EQ(upwards.outputs, other.outputs) << order;
    EXPECT_EQ(upwards.gradients, other.gradients) << order;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionTensor,
    testing::Values(
        reference::Attention{1, 1, 1, 1, 64, {}}, reference::Attention{1, 64, 2, 1, 64, {}},
        reference::Attention{2, 75, 2, 1, 64, {}}, reference::Attention{1, 200, 2, 2, 64, {}},
        reference::Attention{1, 130, 2, 1, 128, {}},
        reference::Attention{1, 150, 2, 1, 64, firstKeysOf({{64, 1, 63, 22}})},
        reference::Attention{2, 140, 2, 1, 128, firstKeysOf({{3, 130, 7}, {70, 70}})},
        // Narrower than the tiles, of tiles whose rows are no multiple of 128 bytes, and with halves of columns.
        reference::Attention{1, 70, 2, 1, 8, {}}, reference::Attention{1, 75, 2, 1, 72, {}},
        reference::Attention{1, 100, 2, 2, 80, firstKeysOf({{30, 70}})},
        reference::Attention{1, 130, 2, 1, 96, {}}, reference::Attention{2, 66, 1, 1, 120, {}},
        reference::Attention{1, 70, 1, 1, 160, {}}, reference::Attention{1, 130, 2, 1, 192, {}},
        reference::Attention{1, 75, 2, 1, 208, firstKeysOf({{40, 35}})},
        reference::Attention{1, 100, 2, 1, 256, {}}));

/// A head is computed by the kernels of matrix instructions, and not by the plain ones: both round in other places.
TEST(AttentionTensorHeads, OfAnyMultipleOfEightAreNotThePlainKernels) {
  for (const std::int64_t headSize : {8, 80, 96, 120, 192, 256}) {
    const std::int64_t sequence = 40,
                       stride = headSize + 4;  // rows that do not begin at multiples of 16 bytes
    const Attention op({1, sequence, 1, 1, headSize, {}});
    const auto backend = createTestBackend(1);
    const auto spread = [&](const Values& values, std::int64_t to) {
      Values rows(static_cast<std::size_t>(sequence * to));
      for (std::int64_t i = 0; i < sequence * headSize; ++i)
        rows[static_cast<std::size_t>(i / headSize * to + i % headSize)] =
            values[static_cast<std::size_t>(i)];
      return rows;
    };
    std::vector<Values> results;
    for (const std::int64_t each : {headSize, stride}) {
      const AttentionShape shape{1, sequence, 1, 1, headSize, each, each, each, headSize};
      const Buffer q(DataType::bfloat16, spread(op.inputs[0], each)),
          k(DataType::bfloat16, spread(op.inputs[1], each)),
          v(DataType::bfloat16, spread(op.inputs[2], each)), o(DataType::bfloat16, op.outputs[0]),
          lse(DataType::float32, Values(sequence)), scratch(backend->attentionWorkspaceBytes(shape));
      const Status status = backend->attentionForward(shape, q.view(), k.view(), v.view(), o.view(),
                                                      lse.view(), scratch.workspace());
      ASSERT_TRUE(status.ok()) << status.message();
      results.push_back(lse.values());
    }
    EXPECT_LE(rmsError(results[0], results[1]), 1e-4 * rootMeanSquare(results[1])) << headSize;
    EXPECT_NE(results[0], results[1]) << headSize;
  }
}

// ---- windows -----------------------------------------------------------------------------------------------------------------

/// Both passes of a whole, the window told as one or as first keys.
std::vector<Values> ofWindow(const reference::Attention& s, std::int64_t window,
                             const std::vector<std::int32_t>& firstKeys) {
  const Attention op(s);
  const auto backend = createTestBackend(1);
  AttentionShape shape{s.batch, s.sequence, s.heads, s.kvHeads, s.headSize};
  shape.window = window;
  if (!firstKeys.empty()) shape.firstKeys = {firstKeys.data(), DataType::int32};
  const Buffer q(DataType::bfloat16, op.inputs[0]), k(DataType::bfloat16, op.inputs[1]),
      v(DataType::bfloat16, op.inputs[2]),
      gO(DataType::bfloat16, gradientsOfOutputs(op, DataType::bfloat16)[0]),
      o(DataType::bfloat16, op.outputs[0]), lse(DataType::float32, Values(s.batch * s.heads * s.sequence)),
      gQ(DataType::bfloat16, op.inputs[0]), gK(DataType::bfloat16, op.inputs[1]),
      gV(DataType::bfloat16, op.inputs[2]), scratch(backend->attentionWorkspaceBytes(shape));
  Status status = backend->attentionForward(shape, q.view(), k.view(), v.view(), o.view(), lse.view(),
                                            scratch.workspace());
  EXPECT_TRUE(status.ok()) << status.message();
  status = backend->attentionBackward(shape, q.view(), k.view(), v.view(), o.view(), lse.view(), gO.view(),
                                      gQ.view(), gK.view(), gV.view(), scratch.workspace());
  EXPECT_TRUE(status.ok()) << status.message();
  return {o.values(), lse.values(), gQ.values(), gK.values(), gV.values()};
}

/// The first key that each query sees, as packed documents tell it; the operators are right with these (above).
std::vector<std::int32_t> firstKeysOfWindow(const reference::Attention& s, std::int64_t window) {
  std::vector<std::int32_t> first;
  for (std::int64_t row = 0; row < s.batch * s.sequence; ++row) {
    const std::int64_t document = s.firstKeys.empty() ? 0 : s.firstKeys[static_cast<std::size_t>(row)];
    first.push_back(static_cast<std::int32_t>(std::max(document, row % s.sequence + 1 - window)));
  }
  return first;
}

TEST(AttentionTensorWindow, IsThatOfTheFirstKeysItMeans) {
  for (const reference::Attention& s :
       {reference::Attention{2, 200, 2, 1, 64, {}}, reference::Attention{1, 300, 1, 1, 128, {}},
        reference::Attention{1, 150, 2, 2, 96, firstKeysOf({{60, 90}})},
        reference::Attention{1, 100, 1, 1, 256, {}}}) {
    for (const std::int64_t window : {std::int64_t{1}, std::int64_t{37}, std::int64_t{64}, s.sequence - 1}) {
      EXPECT_EQ(ofWindow(s, window, s.firstKeys), ofWindow(s, 0, firstKeysOfWindow(s, window)))
          << s.headSize << ", window " << window;
    }
    EXPECT_EQ(ofWindow(s, s.sequence, s.firstKeys), ofWindow(s, 0, s.firstKeys)) << s.headSize;
    EXPECT_NE(ofWindow(s, 37, s.firstKeys), ofWindow(s, 0, s.firstKeys)) << s.headSize;
  }
}

TEST(AttentionTensorWindow, OfLessThanNothingIsRefused) {
  const auto backend = createTestBackend(1);
  const Buffer x(DataType::bfloat16, Values(64)), lse(DataType::float32, Values(1));
  AttentionShape shape{1, 1, 1, 1, 64};
  shape.window = -1;
  const Buffer scratch(backend->attentionWorkspaceBytes(shape));
  const Status status = backend->attentionForward(shape, x.view(), x.view(), x.view(), x.view(), lse.view(),
                                                  scratch.workspace());
  EXPECT_NE(status.message().find("window is -1"), std::string::npos) << status.message();
}

/// Against float32 on the plain kernel, which has other tiles, fragments and masks: large scores, and a row's whole sequence.
TEST(AttentionTensorScores, LargeOnesStayFinite) {
  const Attention op({1, 90, 1, 1, 64}, 8.0);
  const Tuple inputs = roundedTo(op.inputs, DataType::bfloat16),
              gOut = gradientsOfOutputs(op, DataType::bfloat16);
  const KernelResult tensor = runKernel(op, DataType::bfloat16, inputs, gOut, 1);
  const KernelResult plain = runKernel(op, DataType::float32, inputs, gOut, 1);
  EXPECT_LE(rmsError(tensor.outputs[0], plain.outputs[0]), 4e-3 * rootMeanSquare(plain.outputs[0]));
  EXPECT_LE(rmsError(tensor.gradients[2], plain.gradients[2]), 4e-3 * rootMeanSquare(plain.gradients[2]));
}

struct PiecesCase {
  std::int64_t headSize;
  std::vector<std::int64_t> cuts;
  std::vector<std::int32_t> firstKeys;
};
class AttentionTensorPieces : public testing::TestWithParam<PiecesCase> {};

TEST_P(AttentionTensorPieces, AreTogetherTheWhole) {
  const PiecesCase& c = GetParam();
  Attention op({1, c.cuts.back(), 2, 1, c.headSize, c.firstKeys});
  op.inputs = roundedTo(op.inputs, DataType::bfloat16);
  const Tuple gO = gradientsOfOutputs(op, DataType::bfloat16);
  const Tuple out = roundedTo(referenceForward<Attention, double>(op, op.inputs), DataType::bfloat16);
  const Tuple gIn = referenceBackward<Attention, double>(op, op.inputs, out, gO);
  const KernelResult result = AttentionInPieces(op, c.cuts, DataType::bfloat16).run(gO[0]);
  // Probabilities and gradients of scores are rounded to bfloat16 on their way into a product: 2^-9 of each.
  EXPECT_LE(rmsError(result.outputs[0], out[0]), 4e-3 * rootMeanSquare(out[0]));
  for (int i = 0; i < 3; ++i) {
    EXPECT_LE(rmsError(result.gradients[i], gIn[i]), 6e-3 * rootMeanSquare(gIn[i]))
        << "gradient of input " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cuts, AttentionTensorPieces,
                         testing::Values(PiecesCase{64, {0, 64, 128}, {}},
                                         PiecesCase{64, {0, 50, 51, 140}, {}},
                                         PiecesCase{128, {0, 70, 130}, firstKeysOf({{40, 60, 30}})},
                                         PiecesCase{96, {0, 50, 140}, {}},
                                         PiecesCase{256, {0, 70, 100}, firstKeysOf({{40, 60}})}));

/// A ring's pieces, those that the window hides whole among them, and of which only some queries see anything.
TEST(AttentionTensorPiecesWindow, AreThoseOfTheFirstKeysItMeans) {
  for (const std::int64_t headSize : {64, 96, 256}) {
    for (const std::int64_t window : {20, 75}) {
      Attention op({1, 200, 2, 1, headSize, {}});
      op.inputs = roundedTo(op.inputs, DataType::bfloat16);
      const Tuple gO = gradientsOfOutputs(op, DataType::bfloat16);
      const std::vector<std::int64_t> cuts{0, 50, 100, 200};
      op.s.window = window;
      const KernelResult byWindow = AttentionInPieces(op, cuts, DataType::bfloat16).run(gO[0]);
      op.s.window = 0;
      op.s.firstKeys = firstKeysOfWindow(op.s, window);
      const KernelResult byKeys = AttentionInPieces(op, cuts, DataType::bfloat16).run(gO[0]);
      EXPECT_EQ(byWindow.outputs, byKeys.outputs) << headSize << ", window " << window;
      EXPECT_EQ(byWindow.gradients, byKeys.gradients) << headSize << ", window " << window;
    }
  }
}

}  // namespace
}  // namespace internevo::test
