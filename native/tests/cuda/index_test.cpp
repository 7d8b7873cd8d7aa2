// Kernels that count in 32 bits where that is enough compute what they compute when they count in 64.
#include "backend/cuda/backend.h"
#include "backend/cuda/kernels/elementwise.h"
#include "backend/cuda/launch.h"
#include "ops/support.h"

namespace internevo::test {
namespace {

TEST(Index, IsOf32BitsForWhatCanBeCountedSo) {
  const auto bytesFor = [](std::int64_t pieces) {
    std::size_t bytes = 0;
    EXPECT_TRUE(
        cuda::withIndex(pieces, [&](auto index) { return bytes = sizeof index, Status::success(); }).ok());
    return bytes;
  };
  EXPECT_EQ(bytesFor(1), 4u);
  EXPECT_EQ(bytesFor((std::int64_t{1} << 31) - 1), 4u);
  EXPECT_EQ(bytesFor(std::int64_t{1} << 31), 8u);
  // The last piece and one more stride of the largest grid.
  using Kernel = cuda::SwigluKernel<8, float, std::uint32_t>;
  EXPECT_LT(cuda::kLargestIn32Bits + cuda::kBlocks * Kernel::kThreads, std::int64_t{1} << 32);
}

constexpr std::int64_t kRows = 37, kWidth = 56, kStride = 2 * kWidth;

template <typename Index>
std::vector<Values> withIndexOf() {
  const Buffer both(DataType::float32, randomValues(kRows * kStride, 1)),
      y(DataType::float32, Values(kRows * kWidth, 7.));
  const Buffer gY(DataType::float32, randomValues(kRows * kWidth, 2)),
      gBoth(DataType::float32, Values(kRows * kStride, 7.));
  const Buffer rounded(DataType::bfloat16, Values(kRows * kStride, 7.)),
      x(DataType::float32, randomValues(kRows * kStride, 3));
  const std::int64_t half = 14, heads = 4;  // heads of 28
  const Buffer cosines(DataType::float32, randomValues(kRows * half, 4)),
      sines(DataType::float32, randomValues(kRows * half, 5));
  std::int64_t errors = 0;
  const auto all = [](const Buffer& b) { return b.view().as<float>(); };
  const auto index = [](std::int64_t value) { return static_cast<Index>(value); };
  const cuda::Queue queue{};
  const cuda::Grid grid{2};
  const Index pieces = index(kRows * kWidth / 8), piecesOfRow = index(kWidth / 8);
  const std::vector<Status> ran = {
      launch(queue, grid,
             cuda::SwigluKernel<8, float, Index>{pieces, piecesOfRow, kStride, kWidth, all(both),
                                                 all(both) + kWidth, all(y)},
             "a"),
      launch(queue, grid,
             cuda::SwigluGradientKernel<8, float, Index>{pieces, piecesOfRow, kStride, kWidth, all(both),
                                                         all(both) + kWidth, all(gY), all(gBoth),
                                                         all(gBoth) + kWidth},
             "b"),
      launch(queue, grid,
             cuda::ConvertRowsKernel<8, float, cuda::Bfloat16, Index>{
                 pieces, piecesOfRow, kStride, kStride, all(both), rounded.view().as<cuda::Bfloat16>()},
             "c"),
      launch(queue, grid,
             cuda::RopeKernel<1, float, Index>{index(kRows * heads * half), index(heads), index(half),
                                               index(20), 2 * half, half, kStride, 3, nullptr, all(cosines),
                                               all(sines), all(x), 1.f, &errors},
             "d")};
  for (const Status& status : ran) EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(errors, 0);
  return {y.values(), gBoth.values(), rounded.values(), x.values()};
}

TEST(Index, Of32BitsGivesTheBitsOf64) {
  EXPECT_EQ(withIndexOf<std::uint32_t>(), withIndexOf<std::int64_t>());
}

}  // namespace
}  // namespace internevo::test
