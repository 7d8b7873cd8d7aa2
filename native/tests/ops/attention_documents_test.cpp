// Several documents in a sequence, and attention in pieces.
#include <cstring>
#include <numeric>

#include "ops/attention_operator.h"

namespace internevo::test {
namespace {

TEST(AttentionDocuments, OddSizes) {
  expectAll(Attention({2, 23, 4, 2, 10, firstKeysOf({{5, 1, 17}, {1, 1, 1, 20}})}));
}

TEST(AttentionDocuments, BordersInsideAndAtTheEdgesOfTiles) {
  const Attention op({2, 96 * 3 + 31, 2, 1, 24, firstKeysOf({{96, 95, 1, 1, 126}, {7, 281, 3, 28}})});
  expectKernelIsReference(op);
  expectBfloat16IsAsGoodAsPlain(op);
  expectBitsIndependentOfThreads(op);
}

TEST(AttentionDocuments, EveryTokenItsOwnDocument) {
  const Attention op({1, 200, 2, 2, 16, firstKeysOf({Lengths(200, 1)})});
  const KernelResult result = runKernel(op, DataType::float32, op.inputs, {randomValues(200 * 32, 5)}, 1);
  EXPECT_EQ(result.outputs[0], roundedTo(op.inputs[2], DataType::float32));  // softmax over itself
  for (const double g : result.gradients[0])
    ASSERT_NEAR(g, 0, 1e-5);  // what rounding leaves of p·(gP − delta)
}

TEST(AttentionDocuments, OneDocumentGivesTheBitsOfNone) {
  for (const DataType type : {DataType::float32, DataType::bfloat16}) {
    const reference::Attention shape{2, 230, 4, 2, 32};
    reference::Attention documents = shape;
    documents.firstKeys = firstKeysOf({{230}, {230}});
    const Attention plain(shape), packed(documents);
    const Tuple inputs = roundedTo(plain.inputs, type), gO = gradientsOfOutputs(plain, type);
    const KernelResult a = runKernel(plain, type, inputs, gO, 1), b = runKernel(packed, type, inputs, gO, 1);
    EXPECT_EQ(a.outputs, b.outputs);
    EXPECT_EQ(a.gradients, b.gradients);
  }
}

TEST(AttentionDocuments, DocumentsThatStartAtTilesGiveTheBitsOfCallsOfTheirOwn) {
  const Lengths lengths{96, 192, 70};
  const Attention whole({1, 358, 2, 1, 16, firstKeysOf({lengths})});
  const Values gO = randomValues(358 * 32, 9);
  const KernelResult all = runKernel(whole, DataType::float32, whole.inputs, {gO}, 1);
  const auto rows = [](const Values& x, std::int64_t width, std::int64_t first, std::int64_t count) {
    return Values(x.begin() + first * width, x.begin() + (first + count) * width);
  };
  std::int64_t start = 0;
  for (const std::int64_t length : lengths) {
    const Attention part({1, length, 2, 1, 16});
    const KernelResult own =
        runKernel(part, DataType::float32,
                  {rows(whole.inputs[0], 32, start, length), rows(whole.inputs[1], 16, start, length),
                   rows(whole.inputs[2], 16, start, length)},
                  {rows(gO, 32, start, length)}, 1);
    EXPECT_EQ(own.outputs[0], rows(all.outputs[0], 32, start, length));
    EXPECT_EQ(own.gradients[0], rows(all.gradients[0], 32, start, length));
    EXPECT_EQ(own.gradients[1], rows(all.gradients[1], 16, start, length));
    EXPECT_EQ(own.gradients[2], rows(all.gradients[2], 16, start, length));
    start += length;
  }
}

/// What is outside a document's tiles is not read: NaN there does no harm.
TEST(AttentionDocuments, KeysOfOtherDocumentsInOtherTilesAreNeverRead) {
  const std::int64_t length = 96 * 2, size = 8;
  const std::vector<std::int32_t> first = firstKeysOf({{length, length}});
  Values x = randomValues(2 * length * size, 1);
  std::fill(x.begin(), x.begin() + length * size, std::nan(""));
  const Buffer in(DataType::float32, x), out(DataType::float32, Values(x.size())),
      lse(DataType::float32, Values(2 * length));
  const auto backend = createTestBackend(1);
  AttentionShape shape{1, 2 * length, 1, 1, size};
  shape.firstKeys = {first.data(), DataType::int32};
  const Buffer scratch(backend->attentionWorkspaceBytes(shape));
  ASSERT_TRUE(backend
                  ->attentionForward(shape, in.view(), in.view(), in.view(), out.view(), lse.view(),
                                     scratch.workspace())
                  .ok());
  const Values o = out.values();
  for (std::int64_t i = length * size; i < 2 * length * size; ++i) ASSERT_TRUE(std::isfinite(o[i])) << i;
}

TEST(AttentionDocuments, RefusesFirstKeysThatFallOrLieAhead) {
  INTERNEVO_HOST_ONLY();
  const auto backend = createTestBackend(1);
  const Buffer x(DataType::float32, Values(4096)), scratch(backend->attentionWorkspaceBytes({1, 4, 1, 1, 8}));
  for (const std::vector<std::int32_t>& wrong :
       {std::vector<std::int32_t>{0, 1, 0, 0}, {0, 2, 2, 2}, {-1, 0, 0, 0}}) {
    AttentionShape shape{1, 4, 1, 1, 8};
    shape.firstKeys = {wrong.data(), DataType::int32};
    const Status status = backend->attentionForward(shape, x.view(), x.view(), x.view(), x.view(), x.view(),
                                                    scratch.workspace());
    EXPECT_EQ(status.code(), StatusCode::badConfig);
    EXPECT_NE(status.message().find("firstKeys has"), std::string::npos) << status.message();
  }
}

// ---- pieces --------------------------------------------------------------------------------------------------------

struct PiecesCase {
  std::vector<std::int64_t> cuts;
  std::vector<std::int32_t> firstKeys;
  std::int64_t window = 0;
};
class AttentionPieces : public testing::TestWithParam<PiecesCase> {};

TEST_P(AttentionPieces, AreTogetherTheWhole) {
  const PiecesCase& c = GetParam();
  const Attention op({2, c.cuts.back(), 4, 2, 24, c.firstKeys, c.window});
  for (const DataType type : {DataType::float32, DataType::bfloat16}) {
    Attention stored = op;
    stored.inputs = roundedTo(op.inputs, type);
    const Tuple gO = gradientsOfOutputs(op, type);
    const Tuple out = roundedTo(referenceForward<Attention, double>(stored, stored.inputs), type);
    const Tuple gIn = referenceBackward<Attention, double>(stored, stored.inputs, out, gO);
    const KernelResult result = AttentionInPieces(stored, c.cuts, type).run(gO[0]);
    const double tolerance =
        type == DataType::float32 ? 1e-6 : 3e-3;  // p and gS may be bfloat16 in the products
    EXPECT_LE(rmsError(result.outputs[0], out[0]), tolerance * rootMeanSquare(out[0]));
    for (int i = 0; i < 3; ++i) {
      EXPECT_LE(rmsError(result.gradients[i], gIn[i]), tolerance * rootMeanSquare(gIn[i]))
          << "gradient of input " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cuts, AttentionPieces,
    testing::Values(PiecesCase{{0, 96, 192, 288}, {}}, PiecesCase{{0, 50, 100, 150, 200}, {}},
                    PiecesCase{{0, 130, 131, 240}, {}},
                    PiecesCase{{0, 50, 100, 150, 200}, firstKeysOf({{20, 100, 80}, {50, 49, 2, 99}})},
                    PiecesCase{{0, 96, 300}, firstKeysOf({{96, 204}, {1, 299}})},
                    // Of some pieces a window hides everything, of others what their first queries would see.
                    PiecesCase{{0, 50, 100, 150, 200}, {}, 30}, PiecesCase{{0, 96, 192, 288}, {}, 97},
                    PiecesCase{{0, 50, 100, 150, 200}, firstKeysOf({{20, 100, 80}, {200}}), 60}));

TEST(AttentionPieces, OnePieceGivesTheBitsOfTheWhole) {
  const Attention op({2, 210, 4, 2, 32, firstKeysOf({{100, 110}, {210}})});
  const Tuple gO = gradientsOfOutputs(op, DataType::float32);
  const KernelResult whole = runKernel(op, DataType::float32, op.inputs, gO, 1);
  const KernelResult piece = AttentionInPieces(op, {0, 210}, DataType::float32).run(gO[0]);
  EXPECT_EQ(piece.outputs, whole.outputs);
  EXPECT_EQ(piece.gradients, whole.gradients);
}

TEST(AttentionPieces, RowsThatSeeNothingAreZeroWithoutWeight) {
  const auto backend = createTestBackend(1);
  AttentionBlockShape shape;
  shape.batch = shape.heads = shape.kvHeads = 1, shape.sequence = 4, shape.keySequence = 4,
  shape.headSize = 8;
  shape.keyPosition = 2;  // queries 0 and 1 are before every key
  const Buffer x(DataType::float32, randomValues(32, 1)), o(DataType::float32, Values(32, 3.)),
      lse(DataType::float32, Values(4, 3.)), scratch(backend->attentionBlockWorkspaceBytes(shape));
  ASSERT_TRUE(backend
                  ->attentionBlockForward(shape, x.view(), x.view(), x.view(), false, o.view(), lse.view(),
                                          scratch.workspace())
                  .ok());
  const Values out = o.values(), weights = lse.values();
  EXPECT_EQ(Values(out.begin(), out.begin() + 16), Values(16));
  EXPECT_EQ(weights[0], -INFINITY);
  EXPECT_EQ(weights[1], -INFINITY);
  const Values keys = x.values();
  EXPECT_EQ(Values(out.begin() + 16, out.begin() + 24),
            Values(keys.begin(), keys.begin() + 8));  // query 2 sees key 2 only
  EXPECT_TRUE(std::isfinite(weights[3]));
}

}  // namespace
}  // namespace internevo::test
