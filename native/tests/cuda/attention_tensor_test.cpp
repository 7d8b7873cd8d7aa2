// Attention on matrix instructions: bfloat16, heads of 64 and 128. Index functions, fragments, masks, copies and barriers are
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
    testing::Values(reference::Attention{1, 1, 1, 1, 64, {}}, reference::Attention{1, 64, 2, 1, 64, {}},
                    reference::Attention{2, 75, 2, 1, 64, {}}, reference::Attention{1, 200, 2, 2, 64, {}},
                    reference::Attention{1, 130, 2, 1, 128, {}},
                    reference::Attention{1, 150, 2, 1, 64, firstKeysOf({{64, 1, 63, 22}})},
                    reference::Attention{2, 140, 2, 1, 128, firstKeysOf({{3, 130, 7}, {70, 70}})}));

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
                                         PiecesCase{128, {0, 70, 130}, firstKeysOf({{40, 60, 30}})}));

}  // namespace
}  // namespace internevo::test
