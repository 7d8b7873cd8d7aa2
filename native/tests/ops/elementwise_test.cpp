// RMSNorm, rotary positions, SwiGLU, addition, biases and conversion.
#include "backend/cpu/reference/reference.h"
#include "ops/support.h"

namespace internevo::test {
namespace {

constexpr double kEpsilon = 1e-5;

/// Two outputs: the norm, and h = x + residual, which goes on past the norm.
struct Norm {
  std::int64_t rows, width;
  Tuple inputs, outputs;
  std::vector<bool> accumulated{false, false, true};

  Norm(std::int64_t r, std::int64_t w)
      : rows(r),
        width(w),
        inputs{randomValues(r * w, 1), randomValues(r * w, 2), randomValues(w, 3)},
        outputs{Values(r * w), Values(r * w)} {}

  template <typename T>
  std::vector<T> sum(const std::vector<std::vector<T>>& in) const {
    std::vector<T> h = in[0];
    for (std::size_t i = 0; i < h.size(); ++i) h[i] += in[1][i];
    return h;
  }
  template <typename T>
  void forward(const std::vector<std::vector<T>>& in, std::vector<std::vector<T>>& out) const {
    out[1] = sum(in);
    reference::rmsNormForward(rows, width, out[1].data(), in[2].data(), static_cast<T>(kEpsilon),
                              out[0].data());
  }
  template <typename T>
  void backward(const std::vector<std::vector<T>>& in, const std::vector<std::vector<T>>& out,
                const std::vector<std::vector<T>>& gOut, std::vector<std::vector<T>>& gIn) const {
    reference::rmsNormBackward(rows, width, out[1].data(), in[2].data(), static_cast<T>(kEpsilon),
                               gOut[0].data(), gIn[0].data(), gIn[2].data());
    for (std::size_t i = 0; i < gIn[0].size(); ++i) gIn[1][i] = gIn[0][i] += gOut[1][i];
  }
  Status run(Backend& backend, std::vector<Buffer>& in, std::vector<Buffer>& out, std::vector<Buffer>& gOut,
             std::vector<Buffer>& gIn) const {
    const Buffer inverseRms(DataType::float32, Values(rows));
    INTERNEVO_RETURN_IF_ERROR(backend.rmsNormForward({rows, width}, in[0].view(), in[1].view(), in[2].view(),
                                                     static_cast<float>(kEpsilon), out[1].view(),
                                                     out[0].view(), inverseRms.view()));
    const Buffer scratch(backend.normWorkspaceBytes({rows, width}));
    INTERNEVO_RETURN_IF_ERROR(backend.rmsNormBackward({rows, width}, out[1].view(), in[2].view(),
                                                      inverseRms.view(), gOut[0].view(), gOut[1].view(),
                                                      gIn[0].view(), gIn[2].view(), scratch.workspace()));
    return backend.convert(rows * width, gIn[0].view(), gIn[1].view());
  }
};

TEST(RmsNorm, WithResidual) { expectAll(Norm(13, 50)); }
TEST(RmsNorm, Wide) { expectAll(Norm(5, 520)); }
TEST(RmsNorm, OfMoreRowsThanSumsOfTheGain) {
  const Norm op(601, 16);
  expectKernelIsReference(op), expectBfloat16IsAsGoodAsPlain(op), expectBitsIndependentOfThreads(op);
}
/// Wider than what a GPU's blocks sum in shared memory.
TEST(RmsNorm, VeryWide) {
  const Norm op(2, 25000);
  expectKernelIsReference(op), expectBfloat16IsAsGoodAsPlain(op);
}
TEST(RmsNorm, ScratchIsThatOfTheProducts) {
  const auto backend = createTestBackend(1);
  for (const std::int64_t width : {8, 4096, 16384, 65536, 1 << 20}) {
    EXPECT_LE(backend->normWorkspaceBytes({1 << 20, width}), backend->linearWorkspaceBytes()) << width;
  }
}

TEST(RmsNorm, WithoutResidualEqualsResidualOfZero) {
  const std::int64_t rows = 7, width = 33;
  const Buffer x(DataType::float32, randomValues(rows * width, 1)),
      zero(DataType::float32, Values(rows * width));
  const Buffer gain(DataType::float32, randomValues(width, 2)), r(DataType::float32, Values(rows));
  const Buffer sum(DataType::float32, Values(rows * width)), a(DataType::float32, Values(rows * width)),
      b(DataType::float32, Values(rows * width));
  const auto backend = createTestBackend(1);
  ASSERT_TRUE(backend
                  ->rmsNormForward({rows, width}, x.view(), zero.view(), gain.view(), 1e-5f, sum.view(),
                                   a.view(), r.view())
                  .ok());
  ASSERT_TRUE(
      backend->rmsNormForward({rows, width}, x.view(), {}, gain.view(), 1e-5f, {}, b.view(), r.view()).ok());
  EXPECT_EQ(a.values(), b.values());
  EXPECT_EQ(sum.values(), x.values());
}

/// Heads at the start of rows that hold more: x in one packed matrix, y and the gradients in another.
struct HeadNorm {
  HeadNormShape s;
  Tuple inputs, outputs;
  std::vector<bool> accumulated{false, true};

  explicit HeadNorm(HeadNormShape shape)
      : s(shape),
        inputs{randomValues(shape.rows * shape.heads * shape.headSize, 1), randomValues(shape.headSize, 2)},
        outputs{Values(shape.rows * shape.heads * shape.headSize)} {}

  template <typename T>
  void forward(const std::vector<std::vector<T>>& in, std::vector<std::vector<T>>& out) const {
    reference::rmsNormForward(s.rows * s.heads, s.headSize, in[0].data(), in[1].data(),
                              static_cast<T>(kEpsilon), out[0].data());
  }
  template <typename T>
  void backward(const std::vector<std::vector<T>>& in, const std::vector<std::vector<T>>&,
                const std::vector<std::vector<T>>& gOut, std::vector<std::vector<T>>& gIn) const {
    reference::rmsNormBackward(s.rows * s.heads, s.headSize, in[0].data(), in[1].data(),
                               static_cast<T>(kEpsilon), gOut[0].data(), gIn[0].data(), gIn[1].data());
  }
  /// The gradient in place of gY, as a packed gradient has it.
  Status run(Backend& backend, std::vector<Buffer>& in, std::vector<Buffer>& out, std::vector<Buffer>& gOut,
             std::vector<Buffer>& gIn) const {
    const std::int64_t width = s.heads * s.headSize;
    const std::int64_t inputStride = s.inputStride == 0 ? width : s.inputStride,
                       outputStride = s.outputStride == 0 ? width : s.outputStride;
    const DataType type = in[0].view().type;
    const Buffer x(type, Values(s.rows * inputStride, 3.)), y(type, Values(s.rows * outputStride, 5.)),
        gradient(type, Values(s.rows * outputStride, 7.)),
        inverseRms(DataType::float32, Values(s.rows * s.heads));
    const auto copy = [&](View from, std::int64_t fromStride, View to, std::int64_t toStride) {
      return backend.convertRows(s.rows, width, from, fromStride, to, toStride);
    };
    INTERNEVO_RETURN_IF_ERROR(copy(in[0].view(), width, x.view(), inputStride));
    INTERNEVO_RETURN_IF_ERROR(copy(gOut[0].view(), width, gradient.view(), outputStride));
    INTERNEVO_RETURN_IF_ERROR(backend.headNormForward(s, x.view(), in[1].view(), static_cast<float>(kEpsilon),
                                                      y.view(), inverseRms.view()));
    const Buffer scratch(backend.normWorkspaceBytes({s.rows * s.heads, s.headSize}));
    INTERNEVO_RETURN_IF_ERROR(backend.headNormBackward(s, x.view(), in[1].view(), inverseRms.view(),
                                                       gradient.view(), gradient.view(), gIn[1].view(),
                                                       scratch.workspace()));
    INTERNEVO_RETURN_IF_ERROR(copy(y.view(), outputStride, out[0].view(), width));
    INTERNEVO_RETURN_IF_ERROR(copy(gradient.view(), outputStride, gIn[0].view(), width));
    INTERNEVO_RETURN_IF_ERROR(backend.settle());
    expectGapsUntouched(x, inputStride, 3.), expectGapsUntouched(y, outputStride, 5.),
        expectGapsUntouched(gradient, outputStride, 7.);
    return Status::success();
  }
  void expectGapsUntouched(const Buffer& matrix, std::int64_t stride, double filling) const {
    const Values values = matrix.values();
    for (std::int64_t i = 0; i < s.rows * stride; ++i) {
      if (i % stride >= s.heads * s.headSize) {
        ASSERT_EQ(values[i], filling) << "element " << i;
      }
    }
  }
};

TEST(HeadNorm, OddSizesAndStrides) {
  expectAll(HeadNorm({9, 3, 10}));
  expectAll(HeadNorm({7, 2, 5, 17, 10}));
  expectAll(HeadNorm({1, 1, 3, 3, 8}));
}
/// Queries and keys of 4 heads and 2 key/value heads in rows of 8 heads.
TEST(HeadNorm, OfAPackedMatrix) {
  expectAll(HeadNorm({11, 4, 32, 256, 256}));
  expectAll(HeadNorm({11, 2, 128, 1024, 256}));
}
TEST(HeadNorm, OfMoreHeadsThanSumsOfTheGain) {
  const HeadNorm op({700, 3, 16, 48, 56});
  expectKernelIsReference(op), expectBfloat16IsAsGoodAsPlain(op), expectBitsIndependentOfThreads(op);
}

/// What the backward pass makes again is what the forward pass had: in place or not, and whatever the strides.
TEST(HeadNorm, InPlaceAndAgainGiveTheSameBits) {
  const std::int64_t rows = 6, heads = 3, size = 24, stride = 100;
  for (const DataType type : {DataType::float32, DataType::bfloat16}) {
    const Values x = randomValues(rows * stride, 1);
    const Buffer kept(type, x), inPlace(type, x), gain(type, randomValues(size, 2)),
        y(type, Values(rows * heads * size));
    const Buffer first(DataType::float32, Values(rows * heads)),
        again(DataType::float32, Values(rows * heads));
    const auto backend = createTestBackend(1);
    ASSERT_TRUE(backend
                    ->headNormForward({rows, heads, size, stride, stride}, inPlace.view(), gain.view(), 1e-6f,
                                      inPlace.view(), first.view())
                    .ok());
    ASSERT_TRUE(backend
                    ->headNormForward({rows, heads, size, stride, 0}, kept.view(), gain.view(), 1e-6f,
                                      y.view(), again.view())
                    .ok());
    ASSERT_TRUE(backend->settle().ok());
    EXPECT_EQ(first.values(), again.values());
    const Values packed = inPlace.values(), dense = y.values(), before = kept.values();
    for (std::int64_t i = 0; i < rows * stride; ++i) {
      const std::int64_t row = i / stride, column = i % stride;
      ASSERT_EQ(packed[i], column < heads * size ? dense[row * heads * size + column] : before[i]) << i;
    }
  }
}

TEST(HeadNorm, ScratchIsThatOfTheProducts) {
  const auto backend = createTestBackend(1);
  EXPECT_LE(backend->normWorkspaceBytes({std::int64_t{1} << 26, 128}), backend->linearWorkspaceBytes());
}

TEST(HeadNorm, RefusesWhatDoesNotFit) {
  const Buffer x(DataType::float32, Values(64)), y(DataType::float32, Values(64)),
      sums(DataType::float32, Values(64));
  const auto backend = createTestBackend(1);
  const auto forward = [&](const HeadNormShape& shape, View to) {
    return backend->headNormForward(shape, x.view(), x.view(), 1e-6f, to, sums.view());
  };
  const Status overlap = forward({2, 2, 8, 15}, y.view());
  EXPECT_NE(overlap.message().find("inputStride is 15; must be 0 or at least 16"), std::string::npos)
      << overlap.message();
  EXPECT_NE(forward({2, 0, 8}, y.view()).message().find("heads is 0; must be positive"), std::string::npos);
  EXPECT_NE(forward({2, 2, 8, 16, 20}, x.view()).message().find("must be equal"), std::string::npos);
  const Status alias = backend->headNormBackward({2, 2, 8}, x.view(), y.view(), sums.view(), y.view(),
                                                 x.view(), sums.view(), y.workspace());
  EXPECT_NE(alias.message().find("gX may alias only gY"), std::string::npos) << alias.message();
}

RopeFrequencies frequenciesOf(const RopeFields& fields) {
  RopeFrequencies result;
  const Status status = ropeFrequencies(fields, &result);
  EXPECT_TRUE(status.ok()) << status.message();
  return result;
}

struct Rope {
  std::int64_t rows, heads, sequence, offset;
  RopeFields fields;
  Tuple inputs, outputs;
  std::vector<bool> accumulated{false};

  Rope(std::int64_t r, std::int64_t h, const RopeFields& f, std::int64_t s, std::int64_t o)
      : rows(r),
        heads(h),
        sequence(s),
        offset(o),
        fields(f),
        inputs{randomValues(r * h * f.headSize, 1)},
        outputs{Values(r * h * f.headSize)} {}

  template <typename T>
  void forward(const std::vector<std::vector<T>>& in, std::vector<std::vector<T>>& out) const {
    out[0] = in[0];
    reference::rope(rows, heads, fields.headSize, sequence, offset, frequenciesOf(fields), 1, out[0].data());
  }
  template <typename T>
  void backward(const std::vector<std::vector<T>>&, const std::vector<std::vector<T>>&,
                const std::vector<std::vector<T>>& gOut, std::vector<std::vector<T>>& gIn) const {
    gIn[0] = gOut[0];
    reference::rope(rows, heads, fields.headSize, sequence, offset, frequenciesOf(fields), -1, gIn[0].data());
  }
  Status run(Backend& backend, std::vector<Buffer>& in, std::vector<Buffer>& out, std::vector<Buffer>& gOut,
             std::vector<Buffer>& gIn) const {
    const RopeFrequencies frequencies = frequenciesOf(fields);
    const std::int64_t positions = offset + sequence, elements = rows * heads * fields.headSize;
    const Buffer cosines(DataType::float32, Values(positions * frequencies.pairs())),
        sines(DataType::float32, Values(positions * frequencies.pairs()));
    INTERNEVO_RETURN_IF_ERROR(backend.ropeTable(positions, frequencies, cosines.view(), sines.view()));
    INTERNEVO_RETURN_IF_ERROR(backend.convert(elements, in[0].view(), out[0].view()));
    INTERNEVO_RETURN_IF_ERROR(backend.convert(elements, gOut[0].view(), gIn[0].view()));
    const RopeShape shape{rows, heads, fields.headSize, 0, sequence, offset, {}, fields.rotarySize};
    INTERNEVO_RETURN_IF_ERROR(backend.ropeForward(shape, cosines.view(), sines.view(), out[0].view()));
    return backend.ropeBackward(shape, cosines.view(), sines.view(), gIn[0].view());
  }
};

RopeScaling llama31() { return {RopeScalingKind::llama3, 8, 8192}; }
RopeScaling yarn(double factor, double originalPositions) {
  return {RopeScalingKind::yarn, factor, originalPositions};
}

void expectPairs(const RopeFields& fields, const std::vector<std::pair<std::size_t, double>>& expected) {
  const RopeFrequencies frequencies = frequenciesOf(fields);
  for (const auto& [pair, value] : expected)
    EXPECT_NEAR(frequencies.inverse[pair], value, 1e-13 * value) << "pair " << pair;
}

// The numbers come from another program, in Python, that follows transformers' definitions step by step in float64.
TEST(RopeFrequencies, OfLlama31) {
  expectPairs({128, 500000, 0, llama31()}, {{0, 1.0},
                                            {28, 0.0032114459947525913},
                                            {29, 0.002166570763503359},
                                            {33, 0.00031269375038406517},
                                            {34, 0.00017850781276799638},
                                            {35, 9.556212353964683e-05},
                                            {63, 3.068925988914511e-07}});
}
TEST(RopeFrequencies, OfYarn) {
  expectPairs({128, 1e6, 0, yarn(4, 32768)}, {{0, 1.0},
                                              {23, 0.006978305848598663},
                                              {24, 0.005375321490790102},
                                              {30, 0.0010643609812470017},
                                              {39, 6.490394320837028e-05},
                                              {40, 4.445698525097307e-05},
                                              {63, 3.102344401879299e-07}});
  RopeScaling exact = yarn(32, 4096);
  exact.truncate = false;
  expectPairs({64, 150000, 0, exact}, {{8, 0.050813274815461475},
                                       {9, 0.03170569618466377},
                                       {12, 0.006794959489732219},
                                       {17, 0.00012931870124506317},
                                       {18, 3.8308812373753384e-05}});
}
TEST(RopeFrequencies, AttentionFactorOfYarn) {
  RopeScaling s = yarn(40, 4096);
  EXPECT_DOUBLE_EQ(frequenciesOf({64, 10000, 0, s}).attentionFactor, 1.3688879454113936);
  s.mscale = 0.707, s.mscaleAllDimensions = 1;
  EXPECT_DOUBLE_EQ(frequenciesOf({64, 10000, 0, s}).attentionFactor, 0.9210423553163399);
  s.attentionFactor = 1.25;
  EXPECT_EQ(frequenciesOf({64, 10000, 0, s}).attentionFactor, 1.25);
  EXPECT_EQ(frequenciesOf({64, 10000, 0, yarn(1, 4096)}).attentionFactor, 1);
  EXPECT_EQ(frequenciesOf({64, 10000, 0, llama31()}).attentionFactor, 1);
}
TEST(RopeFrequencies, LinearDividesAll) {
  const RopeFrequencies plain = frequenciesOf({48, 10000}),
                        linear = frequenciesOf({48, 10000, 0, {RopeScalingKind::linear, 4}});
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(linear.inverse[i], plain.inverse[i] / 4);
}
/// Whatever the sizes, a scaled pair turns no faster than without scaling and no slower than stretched by the whole factor.
TEST(RopeFrequencies, AreBetweenThoseOfBothEnds) {
  for (const std::int64_t size : {2, 10, 80, 128}) {
    for (const double theta : {100., 10000., 1e6}) {
      const RopeFrequencies plain = frequenciesOf({size, theta});
      for (const RopeScaling& s : {llama31(), yarn(16, 4096), yarn(2, 40)}) {
        const RopeFrequencies scaled = frequenciesOf({size, theta, 0, s});
        for (std::size_t i = 0; i < plain.inverse.size(); ++i) {
          EXPECT_LE(scaled.inverse[i], plain.inverse[i] * (1 + 1e-15));
          EXPECT_GE(scaled.inverse[i], plain.inverse[i] / s.factor * (1 - 1e-15));
        }
      }
    }
  }
}
TEST(RopeFrequencies, RefusesWhatIsNoScaling) {
  const auto message = [](const RopeFields& fields) {
    RopeFrequencies result;
    const Status status = ropeFrequencies(fields, &result);
    EXPECT_EQ(status.code(), StatusCode::badConfig);
    return status.message();
  };
  EXPECT_EQ(message({7}), "rotary positions: headSize is 7; must be even, as rotary positions turn pairs");
  EXPECT_EQ(message({8, 10000, 10}), "rotary positions: rotarySize is 10; must be at most headSize, 8");
  EXPECT_EQ(message({8, 0}), "rotary positions: theta is 0; must be positive");
  EXPECT_EQ(message({8, 10000, 0, {RopeScalingKind::linear, 0.5}}),
            "rotary positions: factor is 0.5; must be at least 1, so that sequences get longer");
  EXPECT_NE(message({8, 10000, 0, {RopeScalingKind::llama3, 8}}).find("originalPositions is 0; must be"),
            std::string::npos);
  RopeScaling s = llama31();
  s.highFrequencyFactor = 1;
  EXPECT_NE(message({8, 10000, 0, s}).find("highFrequencyFactor is 1; must be larger"), std::string::npos);
  s = yarn(2, 4096), s.betaFast = 0.5;
  EXPECT_NE(message({8, 10000, 0, s}).find("betaFast is 0.5; must be at least betaSlow"), std::string::npos);
}

TEST(Rope, Scaled) {
  expectAll(Rope(10, 3, {12, 10000, 0, llama31()}, 5, 20));
  expectAll(Rope(10, 3, {12, 10000, 0, yarn(4, 64)}, 5, 20));
}
TEST(Rope, OfAPartOfAHead) {
  expectAll(Rope(10, 3, {12, 10000, 6}, 5, 20));
  expectAll(Rope(10, 2, {64, 10000, 32, yarn(4, 64)}, 5, 20));
  expectAll(Rope(10, 2, {36, 10000, 16}, 5, 20));
}
TEST(Rope, RefusesAPartThatIsNotOfTheHead) {
  const Buffer x(DataType::float32, Values(64));
  const auto backend = createTestBackend(1);
  const Status odd = backend->ropeForward({2, 1, 8, 0, 2, 0, {}, 3}, x.view(), x.view(), x.view());
  EXPECT_NE(odd.message().find("rotarySize is odd"), std::string::npos) << odd.message();
  const Status wide = backend->ropeForward({2, 1, 8, 0, 2, 0, {}, 10}, x.view(), x.view(), x.view());
  EXPECT_NE(wide.message().find("rotarySize is 10; must be 0 or at most headSize 8"), std::string::npos)
      << wide.message();
}

TEST(Rope, PositionsOfEachRowAreThoseOfTheTable) {
  const std::int64_t sequence = 9, heads = 3, size = 12, rows = 7;
  const std::vector<std::int32_t> positions{0, 1, 8, 0, 3, 3, 2};
  const Values x = randomValues(rows * heads * size, 1);
  const Buffer c(DataType::float32, Values(sequence * size / 2)),
      s(DataType::float32, Values(sequence * size / 2));
  const auto backend = createTestBackend(2);
  ASSERT_TRUE(backend->ropeTable(sequence, size, 10000.0, c.view(), s.view()).ok());
  for (const int direction : {1, -1}) {
    const Buffer rotated(DataType::float32, x);
    const RopeShape shape{rows, heads, size, 0, sequence, 0, {positions.data(), DataType::int32}};
    const Status status = direction == 1 ? backend->ropeForward(shape, c.view(), s.view(), rotated.view())
                                         : backend->ropeBackward(shape, c.view(), s.view(), rotated.view());
    ASSERT_TRUE(status.ok()) << status.message();
    Values expected = roundedTo(x, DataType::float32);
    reference::rope(rows, heads, size, sequence, 0, frequenciesOf({size}), direction, expected.data(),
                    positions.data());
    EXPECT_LE(rmsError(rotated.values(), expected), 1e-7);
  }
  // Counted upwards they are the bits of a call without them.
  const std::vector<std::int32_t> ascending{2, 3, 4, 5, 6, 7, 8};
  const Buffer a(DataType::float32, x), b(DataType::float32, x);
  ASSERT_TRUE(backend->ropeForward({rows, heads, size, 0, sequence, 2}, c.view(), s.view(), a.view()).ok());
  ASSERT_TRUE(backend
                  ->ropeForward({rows, heads, size, 0, sequence, 0, {ascending.data(), DataType::int32}},
                                c.view(), s.view(), b.view())
                  .ok());
  EXPECT_EQ(a.values(), b.values());
}

TEST(Rope, RefusesPositionsOutsideTheTable) {
  INTERNEVO_HOST_ONLY();
  const Buffer table(DataType::float32, Values(16)), x(DataType::float32, Values(16));
  const auto backend = createTestBackend(1);
  for (const std::int32_t wrong : {-1, 4}) {
    const std::vector<std::int32_t> positions{0, wrong};
    const Status status = backend->ropeForward({2, 1, 8, 0, 4, 0, {positions.data(), DataType::int32}},
                                               table.view(), table.view(), x.view());
    EXPECT_EQ(status.code(), StatusCode::badConfig);
    EXPECT_NE(status.message().find("positions has " + std::to_string(wrong) + " in row 1"),
              std::string::npos)
        << status.message();
  }
}

TEST(Rope, TwoSequencesWithOffset) { expectAll(Rope(10, 3, {12}, 5, 20)); }
TEST(Rope, WideHead) { expectAll(Rope(6, 2, {64}, 6, 0)); }

TEST(Rope, OffsetIsThePlaceInTheSequence) {
  const std::int64_t sequence = 8, size = 16;
  const Values x = randomValues(sequence * size, 1);
  const Buffer whole(DataType::float32, x), half(DataType::float32, Values(x.begin() + 4 * size, x.end()));
  const Buffer c(DataType::float32, Values(sequence * size / 2)),
      s(DataType::float32, Values(sequence * size / 2));
  const auto backend = createTestBackend(1);
  ASSERT_TRUE(backend->ropeTable(sequence, size, 10000.0, c.view(), s.view()).ok());
  ASSERT_TRUE(
      backend->ropeForward({sequence, 1, size, 0, sequence, 0}, c.view(), s.view(), whole.view()).ok());
  ASSERT_TRUE(backend->ropeForward({4, 1, size, 0, 4, 4}, c.view(), s.view(), half.view()).ok());
  const Values all = whole.values();
  EXPECT_EQ(Values(all.begin() + 4 * size, all.end()), half.values());
}

/// Rows of y are `stride` apart: what is between them stays as it is.
struct Bias {
  std::int64_t rows, width, stride;
  Tuple inputs, outputs;
  std::vector<bool> accumulated{false, true};

  Bias(std::int64_t r, std::int64_t w, std::int64_t s)
      : rows(r),
        width(w),
        stride(s),
        inputs{randomValues(r * s, 1), randomValues(w, 2)},
        outputs{Values(r * s)} {}

  template <typename T>
  void forward(const std::vector<std::vector<T>>& in, std::vector<std::vector<T>>& out) const {
    out[0] = in[0];
    reference::biasAdd(rows, width, stride, in[1].data(), out[0].data());
  }
  template <typename T>
  void backward(const std::vector<std::vector<T>>&, const std::vector<std::vector<T>>&,
                const std::vector<std::vector<T>>& gOut, std::vector<std::vector<T>>& gIn) const {
    gIn[0] = gOut[0];
    reference::biasGradient(rows, width, stride, gOut[0].data(), gIn[1].data());
  }
  Status run(Backend& backend, std::vector<Buffer>& in, std::vector<Buffer>& out, std::vector<Buffer>& gOut,
             std::vector<Buffer>& gIn) const {
    INTERNEVO_RETURN_IF_ERROR(backend.convert(rows * stride, in[0].view(), out[0].view()));
    INTERNEVO_RETURN_IF_ERROR(backend.convert(rows * stride, gOut[0].view(), gIn[0].view()));
    const BiasShape shape{rows, width, stride};
    INTERNEVO_RETURN_IF_ERROR(backend.biasAdd(shape, in[1].view(), out[0].view()));
    const Buffer scratch(backend.normWorkspaceBytes({rows, width}));
    return backend.biasGradient(shape, gOut[0].view(), gIn[1].view(), scratch.workspace());
  }
};

TEST(Bias, OddSizesAndStrides) {
  for (const std::int64_t width : {1, 7, 43}) {
    for (const std::int64_t stride : {width, width + 5}) expectAll(Bias(9, width, stride));
  }
}
TEST(Bias, WholePieces) { expectAll(Bias(13, 200, 208)); }
TEST(Bias, OfMoreRowsThanSums) {
  const Bias op(601, 16, 16);
  expectKernelIsReference(op), expectBfloat16IsAsGoodAsPlain(op), expectBitsIndependentOfThreads(op);
}

TEST(Bias, GradientIsAddedToWhatIsThere) {
  const Values gY = roundedTo(randomValues(2 * 3, 1), DataType::float32);
  const Buffer gradient(DataType::float32, gY), sum(DataType::float32, {1, 2, 3});
  const auto backend = createTestBackend(1);
  const Buffer scratch(backend->normWorkspaceBytes({2, 3}));
  ASSERT_TRUE(backend->biasGradient({2, 3}, gradient.view(), sum.view(), scratch.workspace()).ok());
  ASSERT_TRUE(backend->settle().ok());
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(sum.values()[i], static_cast<double>(i + 1) + gY[i] + gY[3 + i], 1e-6);
}

/// A plan that calls with more rows at a time gets the same sum.
TEST(Bias, CallsOverConsecutiveRowsGiveTheBitsOfOne) {
  INTERNEVO_HOST_ONLY();
  const std::int64_t rows = 300, width = 21, cut = 77;
  const Buffer gY(DataType::bfloat16, randomValues(rows * width, 1));
  const Buffer whole(DataType::float32, Values(width)), parts(DataType::float32, Values(width));
  const auto backend = createTestBackend(1);
  ASSERT_TRUE(backend->biasGradient({rows, width}, gY.view(), whole.view(), {}).ok());
  ASSERT_TRUE(backend->biasGradient({cut, width}, gY.view(), parts.view(), {}).ok());
  ASSERT_TRUE(
      backend->biasGradient({rows - cut, width}, gY.view().offset(cut * width), parts.view(), {}).ok());
  EXPECT_EQ(whole.values(), parts.values());
}

TEST(Bias, RefusesRowsThatOverlapAndOtherTypes) {
  const Buffer y(DataType::float32, Values(64)), narrow(DataType::bfloat16, Values(8));
  const auto backend = createTestBackend(1);
  const Status overlap = backend->biasAdd({2, 8, 7}, y.view(), y.view());
  EXPECT_EQ(overlap.code(), StatusCode::badConfig);
  EXPECT_NE(overlap.message().find("outputStride is 7; must be 0 or at least 8"), std::string::npos)
      << overlap.message();
  const Status mixed = backend->biasAdd({2, 8}, narrow.view(), y.view());
  EXPECT_NE(mixed.message().find("y must have the type of bias"), std::string::npos) << mixed.message();
  const View integers{y.view().data, DataType::int32};
  const Status sum = backend->biasGradient({2, 8}, y.view(), integers, y.workspace());
  EXPECT_NE(sum.message().find("gBias must be float32"), std::string::npos) << sum.message();
}

struct Swiglu {
  std::int64_t rows, width;
  Tuple inputs, outputs;
  std::vector<bool> accumulated{false, false};

  Swiglu(std::int64_t r, std::int64_t w)
      : rows(r),
        width(w),
        inputs{randomValues(r * w, 1, 3.0), randomValues(r * w, 2)},
        outputs{Values(r * w)} {}

  template <typename T>
  void forward(const std::vector<std::vector<T>>& in, std::vector<std::vector<T>>& out) const {
    reference::swigluForward(rows * width, in[0].data(), in[1].data(), out[0].data());
  }
  template <typename T>
  void backward(const std::vector<std::vector<T>>& in, const std::vector<std::vector<T>>&,
                const std::vector<std::vector<T>>& gOut, std::vector<std::vector<T>>& gIn) const {
    reference::swigluBackward(rows * width, in[0].data(), in[1].data(), gOut[0].data(), gIn[0].data(),
                              gIn[1].data());
  }
  Status run(Backend& backend, std::vector<Buffer>& in, std::vector<Buffer>& out, std::vector<Buffer>& gOut,
             std::vector<Buffer>& gIn) const {
    const SwigluShape shape{rows, width};
    INTERNEVO_RETURN_IF_ERROR(backend.swigluForward(shape, in[0].view(), in[1].view(), out[0].view()));
    return backend.swigluBackward(shape, in[0].view(), in[1].view(), gOut[0].view(), gIn[0].view(),
                                  gIn[1].view());
  }
};

TEST(Swiglu, OddWidth) { expectAll(Swiglu(9, 43)); }

TEST(Swiglu, ExtremeGatesStayFinite) {
  const Values gates{-1e30, -200, -90, -1e-30, 0, 1e-30, 90, 200, 1e30};
  const Buffer gate(DataType::float32, gates), up(DataType::float32, Values(gates.size(), 1.0)),
      y(DataType::float32, Values(gates.size()));
  const auto backend = createTestBackend(1);
  ASSERT_TRUE(backend->swigluForward({1, 9}, gate.view(), up.view(), y.view()).ok());
  const Values result = y.values();
  for (std::size_t i = 0; i < gates.size(); ++i) {
    EXPECT_TRUE(std::isfinite(result[i])) << gates[i];
    if (gates[i] >= 90) {
      EXPECT_EQ(result[i], rounded(gates[i], DataType::float32));
    }
  }
  EXPECT_NEAR(result[1], 0, 1e-30);
}

TEST(Swiglu, GateAndUpInOneFusedBuffer) {
  const std::int64_t rows = 3, width = 10;
  const Values fused = randomValues(rows * 2 * width, 4);
  const Buffer both(DataType::float32, fused), y(DataType::float32, Values(rows * width));
  const auto backend = createTestBackend(1);
  ASSERT_TRUE(
      backend->swigluForward({rows, width, 2 * width, 0}, both.view(), both.view().offset(width), y.view())
          .ok());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < width; ++i) {
      const double g = fused[r * 2 * width + i], u = fused[r * 2 * width + width + i];
      EXPECT_NEAR(y.values()[r * width + i], g / (1 + std::exp(-g)) * u, 1e-6);
    }
  }
}

TEST(Convert, RoundsToNearestEvenAndKeepsNaN) {
  const Values x{1.0, 1.00390625, 1.01171875, 1.005, -3.14159, 3.3e38, NAN, INFINITY, 0.1, 0.2, 0.3};
  const Buffer source(DataType::float32, x), target(DataType::bfloat16, Values(x.size()));
  const auto backend = createTestBackend(1);
  ASSERT_TRUE(backend->convert(static_cast<std::int64_t>(x.size()), source.view(), target.view()).ok());
  const Values result = target.values();
  EXPECT_EQ(result[1], 1.0);       // tie, to even
  EXPECT_EQ(result[2], 1.015625);  // tie, to even
  EXPECT_TRUE(std::isnan(result[6]));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isnan(x[i])) {
      EXPECT_EQ(result[i], rounded(x[i], DataType::bfloat16)) << x[i];
    }
  }
}

TEST(Add, AddsAndRoundsOnce) {
  const Values a = roundedTo(randomValues(100, 1), DataType::bfloat16),
               b = roundedTo(randomValues(100, 2), DataType::bfloat16);
  const Buffer x(DataType::bfloat16, a), y(DataType::bfloat16, b);
  const auto backend = createTestBackend(1);
  ASSERT_TRUE(backend->add(100, x.view(), y.view(), x.view()).ok());
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(x.values()[i], rounded(a[i] + b[i], DataType::bfloat16));
}

}  // namespace
}  // namespace internevo::test
