// Speed of the attention kernels on one core, as a share of what the core's fused multiply-adds reach at that moment.
// Not a test: cmake --build build --target attention_benchmark && build/tests/ops/attention_benchmark [sequence]
#include <cstdio>

#include "ops/benchmark_clock.h"
#include "ops/support.h"

namespace internevo::test {
namespace {

constexpr int kRounds = 9;

void measure(std::int64_t sequence, std::int64_t headSize, std::int64_t documents, DataType type) {
  const auto backend = createCpuBackend(1);
  const std::int64_t heads = 2, elements = sequence * heads * headSize;
  AttentionShape shape{1, sequence, heads, heads, headSize};
  std::vector<std::int32_t> firstKeys;
  for (std::int64_t i = 0; i < sequence; ++i) {
    firstKeys.push_back(static_cast<std::int32_t>(i / (sequence / documents) * (sequence / documents)));
  }
  if (documents > 1) shape.firstKeys = {firstKeys.data(), DataType::int32};
  const Buffer q(type, randomValues(elements, 1)), k(type, randomValues(elements, 2)),
      v(type, randomValues(elements, 3)), gO(type, randomValues(elements, 4));
  const Buffer o(type, Values(static_cast<std::size_t>(elements))), gQ(type, o.values()),
      gK(type, o.values()), gV(type, o.values()),
      logSumExp(DataType::float32, Values(static_cast<std::size_t>(heads * sequence)));
  const Buffer scratch(backend->attentionWorkspaceBytes(shape));
  // Pairs (i, j) with j ≤ i inside one document, counted as half of the square as everyone does.
  const double length = static_cast<double>(sequence) / static_cast<double>(documents);
  const double product =
      static_cast<double>(heads * headSize) * length * length * static_cast<double>(documents);
  std::vector<double> forward, backward, forwardShare, backwardShare;
  for (int round = 0; round < kRounds; ++round) {
    const double peak = peakFlopsPerSecond();
    forward.push_back(secondsOf([&] {
      (void)backend->attentionForward(shape, q.view(), k.view(), v.view(), o.view(), logSumExp.view(),
                                      scratch.workspace());
    }));
    backward.push_back(secondsOf([&] {
      (void)backend->attentionBackward(shape, q.view(), k.view(), v.view(), o.view(), logSumExp.view(),
                                       gO.view(), gQ.view(), gK.view(), gV.view(), scratch.workspace());
    }));
    forwardShare.push_back(2 * product / forward.back() / peak);
    backwardShare.push_back(5 * product / backward.back() / peak);
  }
  std::printf(
      "%s sequence %5ld headSize %3ld documents %3ld: forward %7.2f ms %3.0f%% of peak, backward %7.2f ms "
      "%3.0f%%\n",
      type == DataType::float32 ? "fp32" : "bf16", static_cast<long>(sequence), static_cast<long>(headSize),
      static_cast<long>(documents), 1e3 * median(forward), 100 * median(forwardShare), 1e3 * median(backward),
      100 * median(backwardShare));
}

}  // namespace
}  // namespace internevo::test

int main(int count, char** arguments) {
  const std::int64_t sequence = count > 1 ? std::atoll(arguments[1]) : 4096;
  std::printf("%.1f GFLOP/s\n", internevo::test::peakFlopsPerSecond() * 1e-9);
  for (const std::int64_t headSize : {32, 64, 128})
    internevo::test::measure(sequence, headSize, 1, internevo::DataType::float32);
  internevo::test::measure(sequence, 64, 1, internevo::DataType::bfloat16);
  for (const std::int64_t documents : {4, 16, 64}) {
    internevo::test::measure(sequence, 64, documents, internevo::DataType::float32);
  }
}
