// Attention by a library: what it is told of a tensor, who is chosen, and that a library whose numbers are wrong is not.
#include "backend/cuda/attention_choice.h"
#include "emulator/model_attention.h"
#include "emulator/model_backend.h"
#include "internevo/device_library.h"
#include "ops/attention_operator.h"

namespace internevo::test {
namespace {

using cuda::AttentionPass;
using cuda::AttentionTimes;

// ---- layouts --------------------------------------------------------------------------------------------------------

/// Every element of a buffer as the operators' header has it: row = batch · sequence + position, `stride` apart, heads side by side.
void expectElements(const cuda::TensorLayout& layout, const AttentionShape& s, std::int64_t heads,
                    std::int64_t stride) {
  const std::array<std::int64_t, 4> extent{s.batch, heads, s.sequence, s.headSize};
  EXPECT_EQ(layout.extent, extent);
  std::int64_t row = 0;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t position = 0; position < s.sequence; ++position, ++row) {
      std::int64_t element = row * stride;
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t i = 0; i < s.headSize; ++i, ++element) {
          ASSERT_EQ(b * layout.stride[0] + h * layout.stride[1] + position * layout.stride[2] +
                        i * layout.stride[3],
                    element);
        }
      }
    }
  }
}

cuda::AttentionArguments argumentsFor(const AttentionShape& s) {
  return {s.batch,     s.sequence,    s.sequence,     s.heads,       s.kvHeads,  s.headSize, s.queryStride,
          s.keyStride, s.valueStride, s.outputStride, s.queryStride, s.sequence, s.sequence, 0,
          0,           nullptr,       0.125f};
}

TEST(AttentionLayouts, AreThoseOfTheOperatorsViews) {
  const AttentionShape fused{3, 70, 4, 2, 64, 512 + 8, 512 + 8, 512 + 8, 256, {}},
      apart{1, 65, 2, 2, 128, 256, 264, 272, 280, {}};
  for (const AttentionShape& s : {fused, apart}) {
    const cuda::AttentionLayouts layouts = cuda::layoutsOf(cuda::problemOf(argumentsFor(s), true));
    expectElements(layouts.q, s, s.heads, s.queryStride);
    expectElements(layouts.k, s, s.kvHeads, s.keyStride);
    expectElements(layouts.v, s, s.kvHeads, s.valueStride);
    expectElements(layouts.o, s, s.heads, s.outputStride);
    std::int64_t element = 0;  // [batch, heads, sequence]
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        for (std::int64_t row = 0; row < s.sequence; ++row, ++element) {
          const auto& stride = layouts.logSumExp.stride;
          ASSERT_EQ(b * stride[0] + h * stride[1] + row * stride[2], element);
        }
      }
    }
  }
}

TEST(AttentionOfALibrary, IsForWholeDocumentsOfBfloat16InHeadsOfMultiplesOf8) {
  const AttentionShape shape{1, 64, 4, 2, 64, 512, 512, 512, 256, {}};
  alignas(16) std::uint16_t data[16];
  const View bf16{data, DataType::bfloat16};
  const auto takes = [&](auto&& change) {
    cuda::AttentionArguments a = argumentsFor(shape);
    change(a);
    return cuda::libraryTakes(a, {bf16});
  };
  const std::int32_t firstKeys[64]{};
  EXPECT_TRUE(takes([](auto&) {}));
  EXPECT_TRUE(takes([](auto& a) { a.headSize = 128; }));
  EXPECT_TRUE(takes([](auto& a) { a.headSize = 96; }));
  EXPECT_TRUE(takes([](auto& a) { a.headSize = 256; }));
  EXPECT_TRUE(takes([](auto& a) { a.window = 10; }));
  EXPECT_FALSE(takes([](auto& a) { a.headSize = 100; }));
  EXPECT_FALSE(takes([](auto& a) { a.headSize = 264; }));
  EXPECT_FALSE(takes([](auto& a) { a.sequence = a.keySequence = a.queryBatchRows = a.keyBatchRows = 63; }));
  EXPECT_FALSE(takes([&](auto& a) { a.firstKeys = firstKeys; }));
  EXPECT_FALSE(takes([](auto& a) { a.ahead = 64; }));
  EXPECT_FALSE(takes([](auto& a) { a.keySequence = 128; }));
  EXPECT_FALSE(takes([](auto& a) { a.queryBatchRows = 128; }));
  EXPECT_FALSE(takes([](auto& a) { a.keyStride = 508; }));
  EXPECT_FALSE(cuda::libraryTakes(argumentsFor(shape), {View{data, DataType::float32}}));
  EXPECT_FALSE(cuda::libraryTakes(argumentsFor(shape), {View{data + 4, DataType::bfloat16}}));
}

// ---- who is chosen --------------------------------------------------------------------------------------------------

TEST(AttentionChosen, IsTheFasterOfTheSlowestRanks) {
  const auto chosen = [](std::array<std::int64_t, 4> words) { return cuda::chosenBy({words}); };
  constexpr std::int64_t never = AttentionTimes::kNever;
  EXPECT_TRUE(chosen({1000, 900, 1000, 1100}).forward);
  EXPECT_FALSE(chosen({1000, 900, 1000, 1100}).backward);
  EXPECT_FALSE(chosen({1000, 990, 1000, 970}).forward) << "what two measurements differ by";
  EXPECT_FALSE(chosen({1000, 990, 1000, 970}).backward);
  EXPECT_FALSE(chosen({1000, never, 0, never}).forward);
  EXPECT_FALSE(chosen({0, never, 0, never}).backward);
  EXPECT_TRUE(chosen({never, 5000, 0, never}).forward) << "asked for";
  EXPECT_FALSE(chosen({never, never, 0, never}).forward) << "asked for on one rank and missing on another";
  // Faster on one rank, slower on another: the largest of each is what every rank compares.
  const std::array<std::int64_t, 4> one{1000, 800, 3000, 2000}, other{900, 1200, 3000, 2500};
  std::array<std::int64_t, 4> largest{};
  for (std::size_t i = 0; i < 4; ++i) largest[i] = std::max(one[i], other[i]);
  EXPECT_FALSE(chosen(largest).forward);
  EXPECT_TRUE(chosen(largest).backward);
}

// ---- on the model ---------------------------------------------------------------------------------------------------

enum class Flaw { none, forgetsGK, shiftsStatistics, otherBits, slow, needsMuch };

constexpr int kSlower = 100;

/// The model's library with something wrong, and a count of its calls.
class Flawed final : public cuda::ModelAttention {
 public:
  Flawed(Flaw flaw, int* calls) : flaw_(flaw), calls_(calls) {}
  Status prepare(const cuda::AttentionProblem& p, AttentionPass pass, std::int64_t room) override {
    if (flaw_ == Flaw::needsMuch && pass == AttentionPass::backward)
      return {StatusCode::badConfig, "it needs too many bytes"};
    return ModelAttention::prepare(p, pass, room);
  }
  Status compute(const cuda::Queue& queue, const cuda::AttentionProblem& p, AttentionPass pass,
                 const cuda::LibraryAttention& x) override {
    calls_[pass == AttentionPass::backward ? 1 : 0]++;
    const Buffer unused(DataType::bfloat16,
                        Values(static_cast<std::size_t>(p.batch * p.sequence * p.keyStride)));
    cuda::LibraryAttention changed = x;
    if (flaw_ == Flaw::forgetsGK) changed.gK = unused.view();
    INTERNEVO_RETURN_IF_ERROR(ModelAttention::compute(queue, p, pass, changed));
    if (flaw_ == Flaw::shiftsStatistics && pass == AttentionPass::forward) {
      for (std::int64_t i = 0; i < p.batch * p.heads * p.sequence; ++i)
        x.logSumExp.as<float>()[i] *= 1.f / std::log(2.f);
    }
    if (flaw_ == Flaw::otherBits && pass == AttentionPass::backward)
      x.gV.as<std::uint16_t>()[0] ^= calls_[1] & 1;
    // Ours is a model of every thread: what is computed often enough is slower, however busy the machine is.
    for (int i = 0; flaw_ == Flaw::slow && i < kSlower; ++i)
      INTERNEVO_RETURN_IF_ERROR(ModelAttention::compute(queue, p, pass, x));
    return Status::success();
  }

 private:
  const Flaw flaw_;
  int* const calls_;
};

cuda::OpenAttentionLibrary withFlaw(Flaw flaw, int* calls) {
  return [=](std::unique_ptr<cuda::AttentionLibrary>* made) {
    *made = std::make_unique<Flawed>(flaw, calls);
    return Status::success();
  };
}

/// A layer's attention in one fused buffer, as the trainer has it.
struct Layer {
  static constexpr std::int64_t kBatch = 2, kSequence = 70, kHeads = 2, kKeys = 1, kHead = 64;
  static constexpr std::int64_t kWide = kHeads * kHead, kStride = (kHeads + 2 * kKeys) * kHead,
                                kRows = kBatch * kSequence;
  AttentionShape shape{kBatch, kSequence, kHeads, kKeys, kHead, kStride, kStride, kStride, 0, {}};
  Buffer qkv{DataType::bfloat16, randomValues(kRows*kStride, 1)},
      gO{DataType::bfloat16, randomValues(kRows*kWide, 2)};
  Buffer o{DataType::bfloat16, Values(kRows*kWide, 7.)}, gQkv{DataType::bfloat16, Values(kRows*kStride, 7.)};
  Buffer logSumExp{DataType::float32, Values(kRows* kHeads, 7.)};
  Buffer scratch{std::max(cudaBackendSizes().attentionWorkspaceBytes(shape),
                          createCpuBackend(1)->attentionWorkspaceBytes(shape))};

  static View keys(View view) { return view.offset(kWide); }
  static View values(View view) { return view.offset(kWide + kKeys * kHead); }
  AttentionOperands operands() const {
    const View q = qkv.view(), gQ = gQkv.view();
    return {q,         keys(q), values(q), o.view(),   logSumExp.view(),
            gO.view(), gQ,      keys(gQ),  values(gQ), scratch.workspace()};
  }
  /// o, logSumExp and the gradients by this backend.
  std::vector<Values> run(Backend& backend) const {
    const AttentionOperands x = operands();
    Status status = backend.attentionForward(shape, x.q, x.k, x.v, x.o, x.logSumExp, x.scratch);
    EXPECT_TRUE(status.ok()) << status.message();
    status =
        backend.attentionBackward(shape, x.q, x.k, x.v, x.o, x.logSumExp, x.gO, x.gQ, x.gK, x.gV, x.scratch);
    EXPECT_TRUE(status.ok()) << status.message();
    return {o.values(), logSumExp.values(), gQkv.values()};
  }
};

const LargestOfRanks kAlone = [](std::int64_t*, int) { return Status::success(); };

struct Tried {
  std::unique_ptr<Backend> backend;
  int calls[2] = {0, 0};
  Status status;
  std::string said;
};

/// A backend that has this library and may choose.
void tryIt(Flaw flaw, bool deterministic, Tried* tried) {
  unsetenv("INTERNEVO_CUDA_ATTENTION");
  tried->backend = cuda::createModelBackend(false, {0, deterministic}, nullptr, withFlaw(flaw, tried->calls));
  const Layer layer;
  testing::internal::CaptureStderr();
  tried->status = tried->backend->prepareAttention(layer.shape, layer.operands(), kAlone);
  tried->said = testing::internal::GetCapturedStderr();
  tried->calls[0] = tried->calls[1] = 0;
}

double apart(const Values& a, const Values& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
  return std::sqrt(difference / size);
}

/// Of a layer: by the backend that tried, which must call the library `forward` and `backward` times, and by the CPU.
void expectServed(Tried& tried, int forward, int backward) {
  ASSERT_TRUE(tried.status.ok()) << tried.status.message();
  const Layer layer, reference;
  const auto found = layer.run(*tried.backend), expected = reference.run(*createCpuBackend(1));
  EXPECT_EQ(tried.calls[0], forward) << tried.said;
  EXPECT_EQ(tried.calls[1], backward) << tried.said;
  EXPECT_LT(apart(found[0], expected[0]), 0.01);
  EXPECT_LT(apart(found[1], expected[1]), 1e-4);
  EXPECT_LT(apart(found[2], expected[2]), 0.01) << "also where one computes forward and the other backward";
}

TEST(AttentionTrial, TakesALibraryThatIsFasterAndRightAndSaysSo) {
  Tried tried;
  tryIt(Flaw::none, true, &tried);
  EXPECT_NE(tried.said.find("forward plain attention (plain attention "), std::string::npos) << tried.said;
  EXPECT_NE(tried.said.find("backward plain attention"), std::string::npos) << tried.said;
  expectServed(tried, 1, 1);
}

TEST(AttentionTrial, KeepsToOursWhereTheyAreFaster) {
  Tried tried;
  tryIt(Flaw::slow, true, &tried);
  EXPECT_NE(tried.said.find("forward ours (plain attention "), std::string::npos) << tried.said;
  expectServed(tried, 0, 0);
}

TEST(AttentionTrial, RefusesGradientsThatAreNotWritten) {
  Tried tried;
  tryIt(Flaw::forgetsGK, true, &tried);
  EXPECT_NE(tried.said.find("gK differs from ours by 1.0"), std::string::npos) << tried.said;
  expectServed(tried, 1, 0);
}

TEST(AttentionTrial, RefusesStatisticsOfAnotherBase) {
  Tried tried;
  tryIt(Flaw::shiftsStatistics, true, &tried);
  EXPECT_NE(tried.said.find("logSumExp differs"), std::string::npos) << tried.said;
  EXPECT_NE(tried.said.find("backward plain"), std::string::npos)
      << "ours has put its own back: " << tried.said;
  expectServed(tried, 0, 1);
}

TEST(AttentionTrial, RefusesOtherBitsWhereTheBackendIsDeterministicOnly) {
  Tried strict, loose;
  tryIt(Flaw::otherBits, true, &strict);
  EXPECT_NE(strict.said.find("gV has other bits"), std::string::npos) << strict.said;
  expectServed(strict, 1, 0);
  tryIt(Flaw::otherBits, false, &loose);
  expectServed(loose, 1, 1);
}

TEST(AttentionTrial, GoesOnWithOursWhereTheScratchMemoryDoesNotDo) {
  Tried tried;
  tryIt(Flaw::needsMuch, true, &tried);
  EXPECT_NE(tried.said.find("backward ours (plain attention: it needs too many bytes)"), std::string::npos)
      << tried.said;
  expectServed(tried, 1, 0);
}

/// The library is told the window, and has ours' numbers in it: else its trial would refuse it.
TEST(AttentionTrial, IsOfTheWindowToo) {
  Tried tried;
  tryIt(Flaw::none, true, &tried);
  Layer layer;
  layer.shape.window = 20;
  testing::internal::CaptureStderr();
  const Status status = tried.backend->prepareAttention(layer.shape, layer.operands(), kAlone);
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NE(said.find("1 of keys, a window of 20: forward plain attention"), std::string::npos) << said;
  EXPECT_NE(said.find("backward plain attention"), std::string::npos) << said;
}

TEST(AttentionTrial, IsNotMadeForWhatTheLibraryDoesNotTake) {
  Tried tried;
  tryIt(Flaw::none, true, &tried);
  Layer layer;
  const std::vector<std::int32_t> firstKeys(static_cast<std::size_t>(Layer::kRows), 0);
  layer.shape.firstKeys = {firstKeys.data(), DataType::int32};
  ASSERT_TRUE(tried.backend->prepareAttention(layer.shape, layer.operands(), kAlone).ok());
  layer.run(*tried.backend);
  EXPECT_EQ(tried.calls[0] + tried.calls[1], 0);
}

TEST(AttentionTrial, AWishThatCannotBeMetIsAnErrorAndTheOtherRanksAreNotLeftWaiting) {
  setenv("INTERNEVO_CUDA_ATTENTION", "cudnn", 1);
  int calls[2] = {0, 0}, agreed = 0;
  const auto backend = cuda::createModelBackend(false, {}, nullptr, withFlaw(Flaw::needsMuch, calls));
  const Layer layer;
  const AttentionOperands x = layer.operands();
  const Status prepared = backend->prepareAttention(layer.shape, x, [&](std::int64_t* words, int count) {
    EXPECT_EQ(words[AttentionTimes::libraryBackward], AttentionTimes::kNever);
    return agreed += count, Status::success();
  });
  EXPECT_EQ(agreed, static_cast<int>(AttentionTimes::kWords));
  const Status called = backend->attentionBackward(layer.shape, x.q, x.k, x.v, x.o, x.logSumExp, x.gO, x.gQ,
                                                   x.gK, x.gV, x.scratch);
  for (const Status& status : {prepared, called}) {
    EXPECT_EQ(status.code(), StatusCode::badConfig);
    EXPECT_NE(status.message().find("INTERNEVO_CUDA_ATTENTION is \"cudnn\""), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find("unset it"), std::string::npos) << status.message();
  }
  unsetenv("INTERNEVO_CUDA_ATTENTION");
}

Status absent(std::unique_ptr<cuda::AttentionLibrary>*) {
  return {StatusCode::badConfig, "libcudnn.so.9 cannot be opened: no such file; install cuDNN 9"};
}

TEST(AttentionOfALibrary, ThatIsMissingIsSaidAndOursServe) {
  unsetenv("INTERNEVO_CUDA_ATTENTION");
  Tried tried;
  tried.backend = cuda::createModelBackend(false, {}, nullptr, absent);
  const Layer layer;
  testing::internal::CaptureStderr();
  tried.status = tried.backend->prepareAttention(layer.shape, layer.operands(), kAlone);
  tried.said = testing::internal::GetCapturedStderr();
  EXPECT_NE(tried.said.find("of keys: ours; libcudnn.so.9 cannot be opened"), std::string::npos)
      << tried.said;
  expectServed(tried, 0, 0);
}

TEST(AttentionOfALibrary, ThatIsMissingIsAnErrorWhereItIsAskedFor) {
  cuda::Device device;
  setenv("INTERNEVO_CUDA_ATTENTION", "cudnn", 1);
  const Status status = cuda::findAttentionLibrary(absent, &device);
  EXPECT_EQ(status.code(), StatusCode::badConfig);
  EXPECT_NE(status.message().find("INTERNEVO_CUDA_ATTENTION is \"cudnn\": libcudnn.so.9 cannot be opened"),
            std::string::npos);
  EXPECT_NE(status.message().find("unset INTERNEVO_CUDA_ATTENTION"), std::string::npos);
  setenv("INTERNEVO_CUDA_ATTENTION", "warp", 1);
  EXPECT_TRUE(cuda::findAttentionLibrary(absent, &device).ok()) << "ours are asked for: nobody looks";
  unsetenv("INTERNEVO_CUDA_ATTENTION");
}

TEST(AttentionAsked, KnowsItsNames) {
  cuda::AttentionChoice choice{};
  for (const char* const name : {"", "warp", "warpgroup", "cudnn"}) {
    setenv("INTERNEVO_CUDA_ATTENTION", name, 1);
    EXPECT_TRUE(cuda::attentionAsked(&choice).ok()) << name;
  }
  EXPECT_EQ(choice, cuda::AttentionChoice::cudnn);
  setenv("INTERNEVO_CUDA_ATTENTION", "flash", 1);
  EXPECT_NE(cuda::attentionAsked(&choice).message().find("is \"flash\"; must be warp, warpgroup or cudnn"),
            std::string::npos);
  unsetenv("INTERNEVO_CUDA_ATTENTION");
}

}  // namespace
}  // namespace internevo::test
