// Gradients of parameters in bfloat16: what a call adds is summed in float32, and the gradient is rounded once.
#include "ops/support.h"

namespace internevo::test {
namespace {

/// As `add` says, to a float32 and to a bfloat16 gradient that hold the same. The one is the rounding of the other, but that float32
/// sums which begin elsewhere may end on different sides of the middle between two bfloat16 values.
template <typename Add>
void expectRounded(std::int64_t elements, const Add& add) {
  const Values before = roundedTo(randomValues(elements, 9, 0.5), DataType::bfloat16);
  const Buffer wide(DataType::float32, before), narrow(DataType::bfloat16, before),
      one(DataType::bfloat16, before);
  ASSERT_TRUE(add(*createTestBackend(2), wide.view()).ok());
  ASSERT_TRUE(add(*createTestBackend(3), narrow.view()).ok());
  ASSERT_TRUE(add(*createTestBackend(1), one.view()).ok());
  EXPECT_EQ(narrow.values(), one.values()) << "with any number of threads";
  const Values exact = wide.values(), got = narrow.values();
  EXPECT_NE(exact, before);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double unit = std::ldexp(1.0, std::ilogb(std::abs(exact[i]) + 1e-30) - 7);
    ASSERT_LE(std::abs(got[i] - exact[i]), 0.5 * unit + 1e-5) << i;
  }
}

template <typename Call>
Status settled(Backend& backend, const Call& call) {
  INTERNEVO_RETURN_IF_ERROR(call());
  return backend.settle();
}

class GradientType : public ::testing::TestWithParam<DataType> {};

TEST_P(GradientType, OfAWeightIsRoundedOnceAProduct) {
  if (GetParam() == DataType::float32) INTERNEVO_HOST_ONLY();
  const LinearShape shape{700, 70, 45};
  const Buffer x(GetParam(), randomValues(shape.rows * shape.inputs, 1)),
      gY(GetParam(), randomValues(shape.rows * shape.outputs, 2));
  expectRounded(shape.inputs * shape.outputs, [&](Backend& backend, View gW) {
    const Buffer scratch(backend.linearWorkspaceBytes());
    return settled(backend, [&] {
      return backend.linearGradWeight(shape, x.view(), gY.view(), gW, scratch.workspace());
    });
  });
}

TEST_P(GradientType, OfANormAndABiasIsRoundedOnce) {
  const NormShape shape{700, 1100};
  const std::int64_t elements = shape.rows * shape.width;
  const Buffer h(GetParam(), randomValues(elements, 1)), gY(GetParam(), randomValues(elements, 2)),
      gain(GetParam(), randomValues(shape.width, 3)), gH(GetParam(), Values(h.values().size())),
      inverseRms(DataType::float32, Values(static_cast<std::size_t>(shape.rows), 0.01));
  expectRounded(shape.width, [&](Backend& backend, View gGain) {
    const Buffer scratch(backend.normWorkspaceBytes(shape) + 64);
    return settled(backend, [&] {
      return backend.rmsNormBackward(shape, h.view(), gain.view(), inverseRms.view(), gY.view(), {},
                                     gH.view(), gGain, scratch.workspace());
    });
  });
  expectRounded(shape.width, [&](Backend& backend, View gBias) {
    const Buffer scratch(backend.normWorkspaceBytes(shape) + 64);
    return settled(backend, [&] {
      return backend.biasGradient({shape.rows, shape.width}, gY.view(), gBias, scratch.workspace());
    });
  });
}

TEST_P(GradientType, OfTheNormOfHeadsIsRoundedOnce) {
  const HeadNormShape shape{300, 3, 40};
  const std::int64_t elements = shape.rows * shape.heads * shape.headSize;
  const Buffer x(GetParam(), randomValues(elements, 1)), gY(GetParam(), randomValues(elements, 2)),
      gain(GetParam(), randomValues(shape.headSize, 3)), gX(GetParam(), Values(x.values().size())),
      inverseRms(DataType::float32, Values(static_cast<std::size_t>(shape.rows * shape.heads), 0.01));
  expectRounded(shape.headSize, [&](Backend& backend, View gGain) {
    const Buffer scratch(backend.normWorkspaceBytes({shape.rows * shape.heads, shape.headSize}) + 64);
    return settled(backend, [&] {
      return backend.headNormBackward(shape, x.view(), gain.view(), inverseRms.view(), gY.view(), gX.view(),
                                      gGain, scratch.workspace());
    });
  });
}

/// Rounded at each of its rows, a token's sum would stay where a row is less than half a unit of its last place.
TEST_P(GradientType, OfATokenThatIsEverywhereGrowsWithItsRows) {
  const EmbeddingShape shape{3000, 1100, 7};
  std::vector<std::int32_t> tokens(3000, 2);
  for (std::size_t i = 0; i < tokens.size(); i += 3) tokens[i] = static_cast<std::int32_t>(i / 3 % 7);
  Buffer places(DataType::float32, Values(tokens.size()));
  std::copy(tokens.begin(), tokens.end(), places.view().as<std::int32_t>());
  const ConstView list{places.view().data, DataType::int32};
  const Buffer gY(GetParam(), Values(static_cast<std::size_t>(shape.rows * shape.width), 0.25));
  expectRounded(shape.vocabulary * shape.width, [&](Backend& backend, View gTable) {
    return settled(backend, [&] { return backend.embeddingBackward(shape, list, gY.view(), gTable); });
  });
}

TEST_P(GradientType, OfAHeadIsRoundedOnceAChunk) {
  if (GetParam() == DataType::float32) INTERNEVO_HOST_ONLY();
  HeadLossShape shape{90, 48, 101, 256};
  std::vector<std::int32_t> targets(90);
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<std::int32_t>(i * 7 % 101);
  Buffer places(DataType::float32, Values(targets.size()));
  std::copy(targets.begin(), targets.end(), places.view().as<std::int32_t>());
  const ConstView list{places.view().data, DataType::int32};
  const Buffer x(GetParam(), randomValues(shape.rows * shape.width, 1)),
      w(GetParam(), randomValues(shape.vocabulary * shape.width, 2)),
      gX(GetParam(), Values(x.values().size()));
  expectRounded(shape.vocabulary * shape.width, [&](Backend& backend, View gW) {
    const Buffer scratch(backend.headLossWorkspaceBytes(shape));
    ExactSum loss;
    return settled(backend, [&] {
      return backend.headLoss(shape, x.view(), w.view(), list, 1.f, &loss, gX.view(), gW,
                              scratch.workspace());
    });
  });
}

TEST_P(GradientType, OfOthersIsAddedAndRoundedOnce) {
  const Buffer part(GetParam(), randomValues(1000, 1));
  expectRounded(1000, [&](Backend& backend, View target) {
    return settled(backend, [&] { return backend.accumulate(1000, part.view(), target); });
  });
}

INSTANTIATE_TEST_SUITE_P(Activations, GradientType, ::testing::Values(DataType::float32, DataType::bfloat16),
                         [](const auto& type) {
                           return type.param == DataType::float32 ? "float32" : "bfloat16";
                         });

TEST(Adamw, ReadsABfloat16GradientAsTheFloat32OfTheSameValues) {
  const Values start = randomValues(777, 1), g = roundedTo(randomValues(777, 2), DataType::bfloat16);
  const AdamwSettings settings{1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 3, 0.5f};
  const auto backend = createTestBackend(2);
  std::vector<Values> results;
  for (const DataType type : {DataType::float32, DataType::bfloat16}) {
    const Buffer w(DataType::bfloat16, start), master(DataType::float32, start), gradient(type, g),
        m(DataType::float32, start), v(DataType::float32, Values(777, 0.3));
    ASSERT_TRUE(
        backend->adamw(777, settings, w.view(), master.view(), gradient.view(), m.view(), v.view()).ok());
    ExactSum squares;
    ASSERT_TRUE(backend->squaredNorm(777, gradient.view(), &squares).ok());
    ASSERT_TRUE(backend->settle().ok());
    for (const Buffer* each : {&w, &master, &m, &v}) results.push_back(each->values());
    results.push_back({squares.value()});
  }
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(results[i], results[i + 5]) << i;
}

}  // namespace
}  // namespace internevo::test
