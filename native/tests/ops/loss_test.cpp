// Embedding, head and loss.
#include "backend/cpu/reference/reference.h"
#include "ops/support.h"

namespace internevo::test {
namespace {

std::vector<std::int32_t> randomTokens(std::int64_t count, std::int32_t lowest, std::int32_t highest) {
  std::mt19937 engine(5);
  std::uniform_int_distribution<std::int32_t> any(lowest, highest);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (auto& token : tokens) token = any(engine);
  return tokens;
}
ConstView viewOf(const std::vector<std::int32_t>& tokens) { return {tokens.data(), DataType::int32}; }

struct Embedding {
  std::int64_t rows = 40, width = 19, vocabulary = 11;
  std::vector<std::int32_t> tokens = randomTokens(40, 0, 10);
  Tuple inputs{randomValues(11 * 19, 1)}, outputs{Values(40 * 19)};
  std::vector<bool> accumulated{true};

  template <typename T>
  void forward(const std::vector<std::vector<T>>& in, std::vector<std::vector<T>>& out) const {
    reference::embeddingForward(rows, width, tokens.data(), in[0].data(), out[0].data());
  }
  template <typename T>
  void backward(const std::vector<std::vector<T>>&, const std::vector<std::vector<T>>&,
                const std::vector<std::vector<T>>& gOut, std::vector<std::vector<T>>& gIn) const {
    reference::embeddingBackward(rows, width, tokens.data(), gOut[0].data(), gIn[0].data());
  }
  Status run(Backend& backend, std::vector<Buffer>& in, std::vector<Buffer>& out, std::vector<Buffer>& gOut,
             std::vector<Buffer>& gIn) const {
    const EmbeddingShape shape{rows, width, vocabulary};
    INTERNEVO_RETURN_IF_ERROR(backend.embeddingForward(shape, viewOf(tokens), in[0].view(), out[0].view()));
    return backend.embeddingBackward(shape, viewOf(tokens), gOut[0].view(), gIn[0].view());
  }
};

TEST(Embedding, LookupAndGradient) { expectAll(Embedding()); }

TEST(Embedding, RefusesATokenOutsideTheVocabulary) {
  INTERNEVO_HOST_ONLY();
  const Buffer table(DataType::float32, Values(40)), y(DataType::float32, Values(8));
  const std::vector<std::int32_t> tokens{3, 10};
  const auto backend = createTestBackend(1);
  const Status status = backend->embeddingForward({2, 4, 10}, viewOf(tokens), table.view(), y.view());
  EXPECT_EQ(status.code(), StatusCode::dataError);
  EXPECT_NE(status.message().find("tokens[1] is 10"), std::string::npos) << status.message();
}

/// The loss as an output of one element; its gradient comes in as gradientScale, so it is a power of two here.
struct HeadLoss {
  std::int64_t rows, width, vocabulary, chunkRows;
  std::vector<std::int32_t> targets;
  Tuple inputs, outputs{Values(1)};
  std::vector<bool> accumulated{false, true};

  HeadLoss(std::int64_t r, std::int64_t w, std::int64_t v, std::int64_t chunk)
      : rows(r),
        width(w),
        vocabulary(v),
        chunkRows(chunk),
        targets(randomTokens(r, -1, static_cast<std::int32_t>(v) - 1)),
        inputs{randomValues(r * w, 1), randomValues(v * w, 2, 0.3)} {
    targets[0] = -1;
  }

  template <typename T>
  void forward(const std::vector<std::vector<T>>& in, std::vector<std::vector<T>>& out) const {
    out[0][0] = reference::headLoss(rows, width, vocabulary, in[0].data(), in[1].data(), targets.data());
  }
  template <typename T>
  void backward(const std::vector<std::vector<T>>& in, const std::vector<std::vector<T>>&,
                const std::vector<std::vector<T>>& gOut, std::vector<std::vector<T>>& gIn) const {
    // The plain implementation that bfloat16 is compared with: the logits' gradient is rounded before the products that read it.
    if constexpr (std::is_same_v<T, float>) return roundedBackward(in, gOut[0][0], gIn);
    reference::headLossBackward(rows, width, vocabulary, in[0].data(), in[1].data(), targets.data(),
                                gOut[0][0], gIn[0].data(), gIn[1].data());
  }
  void roundedBackward(const std::vector<std::vector<float>>& in, float scale,
                       std::vector<std::vector<float>>& gIn) const {
    std::vector<float> p(static_cast<std::size_t>(vocabulary));
    for (std::int64_t r = 0; r < rows; ++r) {
      if (targets[static_cast<std::size_t>(r)] < 0) continue;
      reference::lossOfRow(width, vocabulary, in[0].data() + r * width, in[1].data(),
                           targets[static_cast<std::size_t>(r)], p);
      p[static_cast<std::size_t>(targets[static_cast<std::size_t>(r)])] -= 1;
      for (std::int64_t c = 0; c < vocabulary; ++c) {
        const auto g =
            static_cast<float>(rounded(p[static_cast<std::size_t>(c)] * scale, DataType::bfloat16));
        for (std::int64_t i = 0; i < width; ++i) {
          gIn[0][static_cast<std::size_t>(r * width + i)] +=
              g * in[1][static_cast<std::size_t>(c * width + i)];
          gIn[1][static_cast<std::size_t>(c * width + i)] +=
              g * in[0][static_cast<std::size_t>(r * width + i)];
        }
      }
    }
  }
  Status run(Backend& backend, std::vector<Buffer>& in, std::vector<Buffer>& out, std::vector<Buffer>& gOut,
             std::vector<Buffer>& gIn) const {
    const HeadLossShape shape{rows, width, vocabulary, chunkRows};
    const Buffer scratch(backend.headLossWorkspaceBytes(shape));
    ExactSum loss;
    INTERNEVO_RETURN_IF_ERROR(backend.headLoss(shape, in[0].view(), in[1].view(), viewOf(targets),
                                               static_cast<float>(gOut[0].values()[0]), &loss, gIn[0].view(),
                                               gIn[1].view(), scratch.workspace()));
    INTERNEVO_RETURN_IF_ERROR(backend.settle());
    out[0] = Buffer(out[0].view().type, {loss.value()});
    return Status::success();
  }
};

TEST(HeadLoss, OneChunk) { expectAll(HeadLoss(21, 17, 53, 64)); }
TEST(HeadLoss, ManyChunks) { expectAll(HeadLoss(21, 17, 53, 8)); }

TEST(HeadLoss, LargeVocabulary) {
  const HeadLoss op(12, 32, 5003, 5);
  expectKernelIsReference(op);
  expectBfloat16IsAsGoodAsPlain(op);
}

TEST(HeadLoss, BitsDoNotDependOnChunksOfWholeBlocksNorOnThreads) {
  INTERNEVO_HOST_ONLY();
  const std::int64_t rows = 2 * kSumBlockRows + 40, width = 20, vocabulary = 70;
  const Values gOut{0.125};
  const HeadLoss one(rows, width, vocabulary, rows), two(rows, width, vocabulary, kSumBlockRows);
  const KernelResult a = runKernel(one, DataType::float32, one.inputs, {gOut}, 1);
  const KernelResult b = runKernel(two, DataType::float32, one.inputs, {gOut}, 2);
  EXPECT_EQ(a.outputs, b.outputs);
  EXPECT_EQ(a.gradients, b.gradients);
}

TEST(HeadLoss, LossAloneEqualsLossWithGradientAndGradientMayReplaceInput) {
  const HeadLoss op(30, 16, 40, 7);
  const auto backend = createTestBackend(1);
  const HeadLossShape shape{30, 16, 40, 7};
  const Buffer x(DataType::float32, op.inputs[0]), w(DataType::float32, op.inputs[1]),
      gX(DataType::float32, Values(480)), gW(DataType::float32, Values(640)),
      gW2(DataType::float32, Values(640)), scratch(backend->headLossWorkspaceBytes(shape));
  ExactSum alone, with, replaced;
  ASSERT_TRUE(
      backend
          ->headLoss(shape, x.view(), w.view(), viewOf(op.targets), 0.5f, &alone, {}, {}, scratch.workspace())
          .ok());
  ASSERT_TRUE(backend
                  ->headLoss(shape, x.view(), w.view(), viewOf(op.targets), 0.5f, &with, gX.view(), gW.view(),
                             scratch.workspace())
                  .ok());
  ASSERT_TRUE(backend
                  ->headLoss(shape, x.view(), w.view(), viewOf(op.targets), 0.5f, &replaced, x.view(),
                             gW2.view(), scratch.workspace())
                  .ok());
  ASSERT_TRUE(backend->settle().ok());
  EXPECT_EQ(alone.words, with.words);
  EXPECT_EQ(gX.values(), x.values());
  EXPECT_EQ(gW.values(), gW2.values());
}

TEST(HeadLoss, RefusesATargetOutsideTheVocabulary) {
  INTERNEVO_HOST_ONLY();
  HeadLoss op(3, 4, 5, 3);
  op.targets = {0, -2, 1};
  const auto backend = createTestBackend(1);
  const Buffer x(DataType::float32, op.inputs[0]), w(DataType::float32, op.inputs[1]),
      scratch(backend->headLossWorkspaceBytes({3, 4, 5, 3}));
  ExactSum loss;
  const Status status = backend->headLoss({3, 4, 5, 3}, x.view(), w.view(), viewOf(op.targets), 1, &loss, {},
                                          {}, scratch.workspace());
  EXPECT_EQ(status.code(), StatusCode::dataError);
  EXPECT_NE(status.message().find("targets[1] is -2"), std::string::npos) << status.message();
}

/// The head in two slices of the vocabulary, or in three with the last shorter: forward of all, then backward of all.
struct SlicedHead : HeadLoss {
  std::int64_t room;
  SlicedHead(std::int64_t n, std::int64_t w, std::int64_t v, std::int64_t roomOfSlice)
      : HeadLoss(n, w, v, n), room(roomOfSlice) {}

  Status run(Backend& backend, std::vector<Buffer>& in, std::vector<Buffer>& out, std::vector<Buffer>& gOut,
             std::vector<Buffer>& gIn) const {
    const int slices = static_cast<int>((vocabulary + room - 1) / room);
    const Buffer scratch(backend.linearWorkspaceBytes());
    std::vector<double> statistics(static_cast<std::size_t>(slices * rows * kHeadStatistics));
    std::vector<Buffer> logits;
    const auto shapeOf = [&](int slice) {
      const std::int64_t first = slice * room;
      return HeadSliceShape{rows, width, std::min(room, vocabulary - first), first, vocabulary};
    };
    const auto statisticsOf = [&](int slice) {
      return View{statistics.data() + slice * rows * kHeadStatistics, DataType::float64};
    };
    for (int slice = 0; slice < slices; ++slice) {
      const HeadSliceShape shape = shapeOf(slice);
      logits.emplace_back(DataType::float32, Values(static_cast<std::size_t>(rows * shape.vocabulary)));
      INTERNEVO_RETURN_IF_ERROR(backend.headSliceForward(
          shape, in[0].view(), in[1].view().offset(shape.first * width), viewOf(targets),
          logits.back().view(), statisticsOf(slice), scratch.workspace()));
    }
    ExactSum loss, alone;
    Values gX(static_cast<std::size_t>(rows * width));
    {
      const Buffer copy(DataType::float32, logits[0].values());
      INTERNEVO_RETURN_IF_ERROR(backend.headSliceBackward(shapeOf(0), slices, 0, in[0].view(), in[1].view(),
                                                          viewOf(targets), statisticsOf(0), 0, &alone,
                                                          copy.view(), {}, {}, scratch.workspace()));
    }
    for (int slice = 0; slice < slices; ++slice) {
      const HeadSliceShape shape = shapeOf(slice);
      const Buffer part(gIn[0].view().type, gX);
      INTERNEVO_RETURN_IF_ERROR(backend.headSliceBackward(
          shape, slices, slice, in[0].view(), in[1].view().offset(shape.first * width), viewOf(targets),
          statisticsOf(0), static_cast<float>(gOut[0].values()[0]), slice == 0 ? &loss : nullptr,
          logits[static_cast<std::size_t>(slice)].view(), part.view(),
          gIn[1].view().offset(shape.first * width), scratch.workspace()));
      const Values values = part.values();
      Values sum = slice == 0 ? Values(values.size()) : gIn[0].values();
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
      gIn[0] = Buffer(gIn[0].view().type, sum);
    }
    INTERNEVO_RETURN_IF_ERROR(backend.settle());
    EXPECT_EQ(alone.value(), loss.value()) << "the loss without gradients";
    out[0] = Buffer(out[0].view().type, {loss.value()});
    return Status::success();
  }
};

TEST(HeadSlices, TogetherAreTheWholeHead) {
  expectKernelIsReference(SlicedHead(21, 17, 53, 27));
  expectKernelIsReference(SlicedHead(21, 17, 53, 20));
  expectBitsIndependentOfThreads(SlicedHead(21, 17, 53, 20));
  expectBfloat16IsAsGoodAsPlain(SlicedHead(12, 32, 5003, 2502));
}

TEST(HeadSlices, HoldLogitsThatAreFarApart) {
  // One slice's largest logit is 200 above the other's: its exponentials must neither overflow nor lose the loss.
  SlicedHead op(2, 1, 4, 2);
  op.inputs = {{1, 1}, {100, 99, -100, -101}};
  op.targets = {2, 0};
  expectKernelIsReference(op);
}

TEST(EmbeddingSlices, SumToTheWholeTableAndKeepTheirOwnGradients) {
  const std::int64_t rows = 40, width = 19, vocabulary = 11, room = 4;
  const std::vector<std::int32_t> tokens = randomTokens(rows, 0, 10);
  const auto backend = createTestBackend(2);
  const Buffer table(DataType::float32, randomValues(vocabulary * width, 1)),
      gY(DataType::float32, randomValues(rows * width, 2)), whole(DataType::float32, Values(rows * width)),
      gWhole(DataType::float32, Values(vocabulary * width));
  ASSERT_TRUE(
      backend->embeddingForward({rows, width, vocabulary}, viewOf(tokens), table.view(), whole.view()).ok());
  ASSERT_TRUE(
      backend->embeddingBackward({rows, width, vocabulary}, viewOf(tokens), gY.view(), gWhole.view()).ok());
  Values sum(rows * width), gradient;
  for (std::int64_t first = 0; first < vocabulary; first += room) {
    const EmbeddingShape slice{rows, width, std::min(room, vocabulary - first), first, vocabulary};
    const Buffer y(DataType::float32, Values(rows * width, 7)),
        gTable(DataType::float32, Values(slice.vocabulary * width));
    ASSERT_TRUE(
        backend->embeddingForward(slice, viewOf(tokens), table.view().offset(first * width), y.view()).ok());
    ASSERT_TRUE(backend->embeddingBackward(slice, viewOf(tokens), gY.view(), gTable.view()).ok());
    const Values values = y.values(), own = gTable.values();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    gradient.insert(gradient.end(), own.begin(), own.end());
  }
  EXPECT_EQ(sum, whole.values());
  EXPECT_EQ(gradient, gWhole.values());
  const Status status =
      backend->embeddingForward({rows, width, 4, 8, vocabulary}, viewOf(tokens), table.view(), whole.view());
  EXPECT_EQ(status.code(), StatusCode::badConfig);
}

}  // namespace
}  // namespace internevo::test
