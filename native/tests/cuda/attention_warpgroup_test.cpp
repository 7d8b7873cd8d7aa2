// Attention on the kernels of sm_90a where their tiles of 128 matter: several blocks of keys that add to one gQ in their order,
// several tiles of queries a block, grouped queries, documents that end inside tiles; and gQ summed a few heads at a time.
#include <queue>

#include "backend/cuda/backend_attention_warpgroup.h"
#include "internevo/device_library.h"
#include "ops/attention_operator.h"

namespace internevo::test {
namespace {

class AttentionWarpgroup : public testing::TestWithParam<reference::Attention> {};

TEST_P(AttentionWarpgroup, IsAsGoodAsAPlainImplementation) {
  expectBfloat16IsAsGoodAsPlain(Attention(GetParam()));
}

TEST_P(AttentionWarpgroup, DoesNotDependOnTheOrderOfThreads) {
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
    Shapes, AttentionWarpgroup,
    testing::Values(reference::Attention{1, 330, 2, 1, 64, {}}, reference::Attention{2, 257, 1, 1, 128, {}},
                    reference::Attention{1, 129, 4, 1, 64, {}},
                    reference::Attention{1, 400, 1, 1, 64, firstKeysOf({{130, 200, 1, 69}})},
                    reference::Attention{1, 320, 2, 1, 128, firstKeysOf({{64, 192, 64}})},
                    // Narrower than the tiles: copies fill what is missing with zeros.
                    reference::Attention{1, 200, 2, 1, 40, {}}, reference::Attention{1, 200, 2, 2, 80, {}},
                    reference::Attention{1, 270, 2, 1, 96, firstKeysOf({{100, 170}})}));

/// A few heads' sums at a time are the bits of all at once.
TEST(AttentionWarpgroupSums, DoNotDependOnTheRoomForThem) {
  const std::int64_t batch = 2, sequence = 150, heads = 4, kvHeads = 2, headSize = 64;
  const Attention op({batch, sequence, heads, kvHeads, headSize, {}});
  const Buffer q(DataType::bfloat16, op.inputs[0]), k(DataType::bfloat16, op.inputs[1]),
      v(DataType::bfloat16, op.inputs[2]);
  const Buffer gO(DataType::bfloat16, gradientsOfOutputs(op, DataType::bfloat16)[0]);
  const Buffer o(DataType::bfloat16, Values(op.inputs[0].size())),
      lse(DataType::float32, Values(batch * heads * sequence));
  const Buffer scratch(
      createTestBackend(1)->attentionWorkspaceBytes({batch, sequence, heads, kvHeads, headSize}));
  const std::int64_t width = heads * headSize, kvWidth = kvHeads * headSize;
  const cuda::AttentionArguments a{batch,    sequence, sequence, heads,   kvHeads, headSize,
                                   width,    kvWidth,  kvWidth,  width,   width,   sequence,
                                   sequence, 0,        0,        nullptr, 0.125f};
  const cuda::Queue queue{};
  std::vector<std::vector<Values>> results;
  for (const std::int64_t room :
       {cuda::AttentionScratch::kSumsBytes, std::int64_t{1}, std::int64_t{1} << 18}) {
    const Buffer gQ(DataType::bfloat16, Values(op.inputs[0].size(), 7.)),
        gK(DataType::bfloat16, Values(op.inputs[1].size(), 7.)),
        gV(DataType::bfloat16, Values(op.inputs[2].size(), 7.));
    const cuda::WarpgroupAttention attention{queue,    hostMemory(),        2,      a,   q.view(), k.view(),
                                             v.view(), scratch.workspace(), "test", room};
    ASSERT_TRUE(attention.fits());
    Status status = attention.forward(o.view(), lse.view().as<float>(), false);
    ASSERT_TRUE(status.ok()) << status.message();
    status = attention.backward(o.view(), gO.view(), lse.view().as<float>(), gQ.view(), gK.view(), gV.view(),
                                false);
    ASSERT_TRUE(status.ok()) << status.message();
    results.push_back({gQ.values(), gK.values(), gV.values()});
  }
  EXPECT_LT(cuda::attentionScratch(batch, sequence, heads, kvHeads, headSize, 1).pairs, batch * kvHeads);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

/// A 7B's layer, 32 heads of 128, of 16,384 and 65,536 tokens: gQ is summed by one launch, and what a library wants that sums
/// the whole of gQ in float32, has a float32 a query and head, and begins at a multiple of 256 bytes, is there too.
TEST(AttentionWarpgroupSums, OfASevenBillionModelAreOneLaunch) {
  constexpr std::int64_t kHeads = 32, kHead = 128;
  for (const std::int64_t sequence : {4096, 16384, 65536}) {
    const cuda::AttentionScratch own = cuda::attentionScratch(1, sequence, kHeads, kHeads, kHead);
    const std::int64_t sums = 4 * kHeads * sequence * kHead, ofLibrary = sums + 4 * kHeads * sequence + 256;
    EXPECT_EQ(own.pairs, kHeads) << sequence;
    EXPECT_EQ(own.bytes - own.sums, sums) << sequence << ": no more than one launch needs";
    EXPECT_LE(ofLibrary, cudaBackendSizes().attentionWorkspaceBytes({1, sequence, kHeads, kHeads, kHead}))
        << sequence;
  }
  const cuda::AttentionScratch longer = cuda::attentionScratch(1, 131072, kHeads, kHeads, kHead);
  EXPECT_EQ(longer.pairs, kHeads / 2);
  EXPECT_EQ(longer.bytes - longer.sums, cuda::AttentionScratch::kSumsBytes);
}

cuda::AttentionArguments causal(std::int64_t batch, std::int64_t sequence, std::int64_t heads,
                                std::int64_t kvHeads, std::int64_t headSize) {
  return {batch,
          sequence,
          sequence,
          heads,
          kvHeads,
          headSize,
          heads * headSize,
          kvHeads * headSize,
          kvHeads * headSize,
          heads * headSize,
          heads * headSize,
          sequence,
          sequence,
          0,
          0,
          nullptr,
          1.f};
}

TEST(AttentionTileOrder, TakesEveryTileOnceAndTheLongestOfASectionFirst) {
  const std::vector<std::array<std::int64_t, 4>> shapes{{1, 1, 1, 100}, {3, 6, 2, 300}, {1, 7, 7, 65536}};
  for (const auto& [batch, heads, kvHeads, sequence] : shapes) {
    const cuda::AttentionArguments a = causal(batch, sequence, heads, kvHeads, 128);
    for (const cuda::TileOrder& order :
         {cuda::forwardOrder(a, 128), cuda::keyOrder(a, 128, batch * kvHeads, 4)}) {
      std::vector<int> times(static_cast<std::size_t>(order.items()), 0);
      cuda::TileOrder::Place before{0, 0};
      for (int i = 0; i < order.items(); ++i) {
        const cuda::TileOrder::Place place = order.at(i);
        ASSERT_TRUE(place.head >= 0 && place.head < order.heads && place.rank >= 0 &&
                    place.rank < order.tiles)
            << i;
        ++times[static_cast<std::size_t>(place.head * order.tiles + place.rank)];
        if (place.head / order.section == before.head / order.section) {
          EXPECT_GE(place.rank, before.rank) << i;
        } else {
          EXPECT_GT(place.head / order.section, before.head / order.section) << i;
        }
        before = place;
      }
      EXPECT_EQ(times, std::vector<int>(times.size(), 1));
    }
  }
}

/// When the last block ends, in steps of a tile, as part of the mean of all: blocks go to whichever multiprocessor is free first.
double endOverMean(const cuda::TileOrder& order, std::int64_t stepsOfATile) {
  std::priority_queue<std::int64_t, std::vector<std::int64_t>, std::greater<>> free;
  constexpr int kMultiprocessors = 132;
  for (int i = 0; i < kMultiprocessors; ++i) free.push(0);
  std::int64_t all = 0, last = 0;
  for (int i = 0; i < order.items(); ++i) {
    const std::int64_t steps = (order.tiles - order.at(i).rank) * stepsOfATile, end = free.top() + steps;
    free.pop(), free.push(end);
    all += steps, last = std::max(last, end);
  }
  return static_cast<double>(last) * kMultiprocessors / static_cast<double>(all);
}

/// A 7B's layer on an H100's multiprocessors: tiles are all that is counted, no waits and no memory.
TEST(AttentionTileOrder, LeavesLittleOfTheEndToFewMultiprocessors) {
  for (const std::int64_t sequence : {4096, 8192, 16384}) {
    const cuda::AttentionArguments a = causal(1, sequence, 32, 32, 128);
    EXPECT_LT(endOverMean(cuda::forwardOrder(a, 128), 1), 1.02) << sequence;
    EXPECT_LT(endOverMean(cuda::keyOrder(a, 128, 32, 4), 2), 1.02) << sequence;
  }
  // What is lost head by head, longest tiles first.
  EXPECT_GT(endOverMean({32, 32, 1}, 1), 1.1);
}

}  // namespace
}  // namespace internevo::test
