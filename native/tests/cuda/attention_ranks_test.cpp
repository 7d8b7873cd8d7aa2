// Ranks agree on who computes attention, also where one of them has no library.
#include <cstdlib>

#include "../comm/support.h"
#include "../installed.h"
#include "internevo/device_library.h"

namespace internevo::test {
namespace {

/// The bits of o of a backend that may have the model's library, chosen with all ranks.
std::vector<std::byte> attention(bool hasLibrary) {
  setenv("INTERNEVO_CUDA_LIBRARY", built::kModelLibrary, 1);
  hasLibrary ? setenv("INTERNEVO_CUDA_ATTENTION", "cudnn", 1) : unsetenv("INTERNEVO_CUDA_ATTENTION");
  std::unique_ptr<Backend> backend;
  const Status opened = openCudaBackend({worldRank(), true}, &backend);
  unsetenv("INTERNEVO_CUDA_ATTENTION");
  EXPECT_TRUE(opened.ok()) << opened.message();
  const AttentionShape shape{1, 80, 1, 1, 64};
  constexpr std::int64_t kElements = 80 * 64, kBytes = 2 * kElements;
  const std::int64_t scratchBytes = backend->attentionWorkspaceBytes(shape),
                     bytes = 4 * kBytes + 4096 + scratchBytes;
  void* data = nullptr;
  EXPECT_TRUE(backend->memory().allocate(bytes, &data).ok());
  const View q{data, DataType::bfloat16}, k = q.offset(kElements), v = k.offset(kElements),
                                          o = v.offset(kElements);
  const View logSumExp{o.offset(kElements).data, DataType::float32};
  const Workspace scratch{logSumExp.offset(1024).data, scratchBytes};
  const std::vector<int> everybody = [] {
    std::vector<int> ranks(static_cast<std::size_t>(worldSize()));
    for (int i = 0; i < worldSize(); ++i) ranks[static_cast<std::size_t>(i)] = i;
    return ranks;
  }();
  Communicator world = makeGroup(everybody, 7);
  std::vector<std::byte> reduce(static_cast<std::size_t>(world.reduceWorkspaceBytes()) + 1);
  const Status prepared = backend->prepareAttention(
      shape, {q, k, v, o, logSumExp, {}, {}, {}, {}, scratch}, [&](std::int64_t* words, int count) {
        return world.allReduce({words, DataType::int64}, count, ReduceOperation::maximum,
                               {reduce.data(), world.reduceWorkspaceBytes()});
      });
  EXPECT_TRUE(prepared.ok()) << prepared.message();
  std::vector<std::uint16_t> values(3 * kElements);
  std::uint32_t state = 1;
  for (auto& value : values)
    value =
        bfloat16FromFloat(static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-22f - 2.f);
  EXPECT_TRUE(backend->memory().upload(data, values.data(), 3 * kBytes).ok());
  EXPECT_TRUE(backend->attentionForward(shape, q, k, v, o, logSumExp, scratch).ok());
  std::vector<std::byte> result(kBytes);
  EXPECT_TRUE(backend->memory().download(result.data(), o.data, kBytes).ok());
  backend->memory().release(data, bytes);
  return result;
}

TEST(AttentionOfRanks, IsTheLibrarysWhereAllHaveItAndOursWhereOneHasNot) {
  const std::vector<std::byte> ours = attention(false), theirs = attention(true);
  EXPECT_NE(ours, theirs);
  if (worldSize() == 1) return;
  EXPECT_EQ(attention(worldRank() != worldSize() - 1), ours);
}

}  // namespace
}  // namespace internevo::test
