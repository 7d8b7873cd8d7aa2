#include <array>
#include <cmath>

#include "backend/cpu/reference/reference.h"
#include "ops/support.h"

namespace internevo::test {
namespace {

struct Linear {
  std::int64_t rows, in, outs;
  Tuple inputs, outputs;
  std::vector<bool> accumulated{false, true};

  Linear(std::int64_t r, std::int64_t i, std::int64_t o)
      : rows(r),
        in(i),
        outs(o),
        inputs{randomValues(r * i, 1), randomValues(o * i, 2)},
        outputs{Values(r * o)} {}

  template <typename T>
  void forward(const std::vector<std::vector<T>>& x, std::vector<std::vector<T>>& y) const {
    reference::linearForward(rows, in, outs, x[0].data(), x[1].data(), y[0].data());
  }
  template <typename T>
  void backward(const std::vector<std::vector<T>>& x, const std::vector<std::vector<T>>&,
                const std::vector<std::vector<T>>& gY, std::vector<std::vector<T>>& gX) const {
    reference::linearGradInput(rows, in, outs, gY[0].data(), x[1].data(), gX[0].data());
    reference::linearGradWeight(rows, in, outs, x[0].data(), gY[0].data(), gX[1].data());
  }
  Status run(Backend& backend, std::vector<Buffer>& x, std::vector<Buffer>& y, std::vector<Buffer>& gY,
             std::vector<Buffer>& gX) const {
    const Buffer scratch(backend.linearWorkspaceBytes());
    const LinearShape shape{rows, in, outs};
    INTERNEVO_RETURN_IF_ERROR(
        backend.linearForward(shape, x[0].view(), x[1].view(), y[0].view(), scratch.workspace()));
    INTERNEVO_RETURN_IF_ERROR(
        backend.linearGradInput(shape, gY[0].view(), x[1].view(), gX[0].view(), false, scratch.workspace()));
    return backend.linearGradWeight(shape, x[0].view(), gY[0].view(), gX[1].view(), scratch.workspace());
  }
};

TEST(Linear, OddShapes) { expectAll(Linear(37, 19, 45)); }
TEST(Linear, DeeperThanOneBlock) { expectAll(Linear(70, 300, 270)); }
TEST(Linear, OneRow) { expectAll(Linear(1, 8, 3)); }

TEST(Linear, RowDoesNotDependOnTheOtherRows) {
  const std::int64_t rows = 800, in = 300, outs = 140;  // more rows than one staged block
  for (const DataType type : {DataType::float32, DataType::bfloat16}) {
    const Buffer x(type, randomValues(rows * in, 1)), w(type, randomValues(outs * in, 2));
    const Buffer whole(type, Values(rows * outs)), parts(type, Values(rows * outs));
    const auto backend = createTestBackend(1);
    const Buffer scratch(backend->linearWorkspaceBytes());
    ASSERT_TRUE(
        backend->linearForward({rows, in, outs}, x.view(), w.view(), whole.view(), scratch.workspace()).ok());
    for (std::int64_t first = 0, count = 1; first < rows;
         first += count, count = std::min(count + 13, rows - first)) {
      ASSERT_TRUE(backend
                      ->linearForward({count, in, outs}, x.view().offset(first * in), w.view(),
                                      parts.view().offset(first * outs), scratch.workspace())
                      .ok());
    }
    EXPECT_EQ(whole.values(), parts.values());
  }
}

TEST(Linear, WeightGradientOfWholeBlocksOfRowsAddsUpToTheSameBits) {
  INTERNEVO_HOST_ONLY();
  const std::int64_t rows = 3 * kSumBlockRows + 45, in = 50, outs = 70;
  const auto backend = createTestBackend(1);
  const Buffer scratch(backend->linearWorkspaceBytes());
  for (const DataType type : {DataType::float32, DataType::bfloat16}) {
    const Buffer x(type, randomValues(rows * in, 1)), gY(type, randomValues(rows * outs, 2));
    const Values before = randomValues(outs * in, 3);
    const Buffer whole(DataType::float32, before), parts(DataType::float32, before);
    ASSERT_TRUE(
        backend->linearGradWeight({rows, in, outs}, x.view(), gY.view(), whole.view(), scratch.workspace())
            .ok());
    for (std::int64_t first = 0; first < rows; first += kSumBlockRows) {
      const std::int64_t count = std::min(kSumBlockRows, rows - first);
      ASSERT_TRUE(backend
                      ->linearGradWeight({count, in, outs}, x.view().offset(first * in),
                                         gY.view().offset(first * outs), parts.view(), scratch.workspace())
                      .ok());
    }
    EXPECT_EQ(whole.values(), parts.values());
  }
}

/// Whole numbers, so that sums are exact: sizes around the borders of tiles, panels and what is packed together, and around
/// the depth of a block. What is behind a matrix is not a number, so that reading it would show.
TEST(Linear, PanelsOfEverySizeAreWhole) {
  const auto backend = createTestBackend(2);
  const Buffer scratch(backend->linearWorkspaceBytes());
  const std::int64_t in = 61;
  for (const DataType type : {DataType::float32, DataType::bfloat16}) {
    for (const std::int64_t rows : {1, 2, 255, 257}) {
      for (const std::int64_t outs : {1, 6, 17, 47, 48, 49, 55, 56, 57, 64, 96, 104, 113, 249}) {
        Values x(static_cast<std::size_t>(rows * in)), gY(static_cast<std::size_t>(rows * outs));
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * 7 % 9) - 4;
        for (std::size_t i = 0; i < gY.size(); ++i) gY[i] = static_cast<double>(i * 5 % 7) - 3;
        const Buffer xBuffer(type, x), gYBuffer(type, gY),
            gW(DataType::float32, Values(static_cast<std::size_t>(outs * in)));
        ASSERT_TRUE(backend
                        ->linearGradWeight({rows, in, outs}, xBuffer.view(), gYBuffer.view(), gW.view(),
                                           scratch.workspace())
                        .ok());
        Values expected(static_cast<std::size_t>(outs * in));
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t o = 0; o < outs; ++o) {
            for (std::int64_t i = 0; i < in; ++i) expected[o * in + i] += gY[r * outs + o] * x[r * in + i];
          }
        }
        EXPECT_EQ(gW.values(), expected) << rows << " rows, " << outs << " outputs";
      }
    }
  }
}

TEST(Linear, StridedAccumulateAndMixedTypes) {
  INTERNEVO_HOST_ONLY();
  const std::int64_t rows = 9, in = 12, outs = 20, outStride = 33;
  const Values weights = roundedTo(randomValues(outs * in, 2), DataType::bfloat16);
  const Values gradient = roundedTo(randomValues(rows * outStride, 3), DataType::float32);
  const Buffer w(DataType::bfloat16, weights), gY(DataType::float32, gradient);
  const Buffer gX(DataType::float32, Values(rows * in, 10.0));
  const auto backend = createTestBackend(1);
  const Buffer scratch(backend->linearWorkspaceBytes());
  ASSERT_TRUE(backend
                  ->linearGradInput({rows, in, outs, 0, outStride}, gY.view(), w.view(), gX.view(), true,
                                    scratch.workspace())
                  .ok());
  const Values result = gX.values();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < in; ++i) {
      double sum = 10;
      for (std::int64_t o = 0; o < outs; ++o) sum += gradient[r * outStride + o] * weights[o * in + i];
      EXPECT_NEAR(result[r * in + i], sum, 1e-5);
    }
  }
}

TEST(Linear, StridedAccumulate) {
  const std::int64_t rows = 9, in = 12, outs = 20, outStride = 33;
  const Values weights = roundedTo(randomValues(outs * in, 2), DataType::bfloat16);
  const Values gradient = roundedTo(randomValues(rows * outStride, 3), DataType::bfloat16);
  for (const DataType type : {DataType::float32, DataType::bfloat16}) {
    const Buffer w(type, weights), gY(type, gradient), gX(DataType::float32, Values(rows * in, 10.0));
    const auto backend = createTestBackend(1);
    const Buffer scratch(backend->linearWorkspaceBytes());
    ASSERT_TRUE(backend
                    ->linearGradInput({rows, in, outs, 0, outStride}, gY.view(), w.view(), gX.view(), true,
                                      scratch.workspace())
                    .ok());
    const Values result = gX.values();
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < in; ++i) {
        double sum = 10;
        for (std::int64_t o = 0; o < outs; ++o) sum += gradient[r * outStride + o] * weights[o * in + i];
        EXPECT_NEAR(result[r * in + i], sum, 1e-5);
      }
    }
  }
}

TEST(Linear, RefusesBadArgumentsByName) {
  const auto backend = createTestBackend(1);
  const Buffer x(DataType::float32, Values(64)), scratch(backend->linearWorkspaceBytes());
  const Status rows = backend->linearForward({0, 8, 8}, x.view(), x.view(), x.view(), scratch.workspace());
  EXPECT_EQ(rows.code(), StatusCode::badConfig);
  EXPECT_NE(rows.message().find("rows is 0"), std::string::npos) << rows.message();
  const Status stride =
      backend->linearForward({1, 8, 8, 4}, x.view(), x.view(), x.view(), scratch.workspace());
  EXPECT_NE(stride.message().find("inputStride is 4"), std::string::npos) << stride.message();
  const Status missing = backend->linearForward({1, 8, 8}, {}, x.view(), x.view(), scratch.workspace());
  EXPECT_NE(missing.message().find("x is missing"), std::string::npos) << missing.message();
  const Status small =
      backend->linearForward({1, 8, 8}, x.view(), x.view(), x.view(), {scratch.view().data, 64});
  EXPECT_NE(small.message().find("workspace has 64 bytes"), std::string::npos) << small.message();
}

}  // namespace
}  // namespace internevo::test
