// The model's instructions of sm_90 compute what they are defined to, and find what is wrong in how they are used.
#include <gtest/gtest.h>

#include <random>

#include "cuda/instruction_kernels.h"

namespace internevo::cuda {
namespace {

std::vector<std::uint16_t> smallIntegers(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& v : values)
    v = bfloat16FromFloat(static_cast<float>(static_cast<int>(engine() % 9) - 4));
  return values;
}
float at(const std::vector<std::uint16_t>& m, std::size_t index) { return floatFromBfloat16(m[index]); }

TensorMap mapOf(const void* data, std::int64_t columns, std::int64_t rows, std::int64_t heads,
                std::int64_t batch, int boxRows) {
  TensorBox box;
  box.data = data;
  box.extent[0] = columns, box.extent[1] = rows, box.extent[2] = heads, box.extent[3] = batch;
  box.strideBytes[0] = 2 * columns * heads, box.strideBytes[1] = 2 * columns,
  box.strideBytes[2] = 2 * columns * heads * rows;
  box.box[1] = boxRows;
  TensorMap map;
  EXPECT_TRUE(makeTensorMap(box, &map).ok());
  return map;
}

TEST(WarpgroupModel, ProductsAreThoseOfTheMatrices) {
  const auto a = smallIntegers(64 * 128, 1), b = smallIntegers(128 * 128, 2);
  for (int order = 0; order < 3; ++order) {
    model::setThreadOrder(order);
    for (const auto way : {Multiply::byRows, Multiply::byColumns, Multiply::fromRegisters,
                           Multiply::transposedLeft, Multiply::insideAtom}) {
      const bool byColumnsOfLeft = way == Multiply::transposedLeft || way == Multiply::insideAtom;
      const auto columns = static_cast<std::size_t>(Multiply::columnsOf(way));
      const std::size_t sum = byColumnsOfLeft ? 64 : 128, first = way == Multiply::transposedLeft ? 64
                                                                  : way == Multiply::insideAtom   ? 32
                                                                                                  : 0;
      std::vector<float> expected(64 * columns), result(64 * columns);
      for (std::size_t row = 0; row < 64; ++row) {
        for (std::size_t column = 0; column < columns; ++column) {
          for (std::size_t k = 0; k < sum; ++k) {
            const float left = byColumnsOfLeft ? at(a, k * 128 + 64 + row) : at(a, row * 128 + k);
            const float right =
                way == Multiply::byRows ? at(b, column * 128 + k) : at(b, k * 128 + first + column);
            expected[row * columns + column] += left * right;
          }
        }
      }
      const Multiply kernel{mapOf(a.data(), 128, 64, 1, 1, 64), mapOf(b.data(), 128, 128, 1, 1, 128),
                            result.data(), way};
      const Status status = launch({}, {1, 1, 1, Multiply::kSharedBytes}, kernel, "multiply");
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(result, expected) << way << " in order " << order;
    }
  }
  model::setThreadOrder(0);
}

/// rows [n, k] · columns, as float32 sums of numbers that bfloat16 holds.
std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b, std::size_t rows,
                           std::size_t sum, std::size_t columns, bool byRows) {
  std::vector<float> result(rows * columns);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      for (std::size_t k = 0; k < sum; ++k)
        result[i * columns + j] += a[i * sum + k] * (byRows ? b[j * sum + k] : b[k * columns + j]);
    }
  }
  return result;
}
std::vector<float> rounded(std::vector<float> values) {
  for (float& v : values) v = floatFromBfloat16(bfloat16FromFloat(v));
  return values;
}

template <int kHead>
void expectAttentionProducts() {
  using Kernel = AttentionProducts<kHead>;
  constexpr std::size_t kKeys = Kernel::kKeys, kQueries = Kernel::kQueries;
  const auto keys = smallIntegers(kKeys * kHead, 1), queries = smallIntegers(kQueries * kHead, 2);
  std::vector<float> k(keys.size()), q(queries.size());
  for (std::size_t i = 0; i < keys.size(); ++i) k[i] = at(keys, i);
  for (std::size_t i = 0; i < queries.size(); ++i) q[i] = at(queries, i);
  std::vector<float> square(64 * kKeys), weighted(64 * kHead), scores(kKeys * kQueries), gKeys(kKeys * kHead),
      gQueries(kQueries * kHead);
  const Kernel kernel{mapOf(keys.data(), kHead, kKeys, 1, 1, kKeys),
                      mapOf(queries.data(), kHead, kQueries, 1, 1, kQueries),
                      square.data(),
                      weighted.data(),
                      scores.data(),
                      gKeys.data(),
                      gQueries.data()};
  for (int order = 0; order < 3; ++order) {
    model::setThreadOrder(order);
    const Status status = launch({}, {1, 1, 1, Kernel::kSharedBytes}, kernel, "attention products");
    ASSERT_TRUE(status.ok()) << status.message();
    const std::vector<float> later(k.begin() + 64 * kHead, k.end());
    EXPECT_EQ(square, product(later, k, 64, kHead, kKeys, true));
    EXPECT_EQ(weighted, product(rounded(square), k, 64, kKeys, kHead, false));
    EXPECT_EQ(scores, product(k, q, kKeys, kHead, kQueries, true));
    EXPECT_EQ(gKeys, product(rounded(scores), q, kKeys, kQueries, kHead, false));
    std::vector<float> transposed(scores.size());
    for (std::size_t i = 0; i < scores.size(); ++i)
      transposed[i % kQueries * kKeys + i / kQueries] = scores[i];
    EXPECT_EQ(gQueries, product(rounded(transposed), k, kQueries, kKeys, kHead, false));
  }
  model::setThreadOrder(0);
}
TEST(WarpgroupModel, ProductsOfHeadsOf64AreThoseOfTheMatrices) { expectAttentionProducts<64>(); }
TEST(WarpgroupModel, ProductsOfHeadsOf128AreThoseOfTheMatrices) { expectAttentionProducts<128>(); }

TEST(WarpgroupModel, BoxesAreSwizzledAndZeroOutsideTheTensor) {
  const auto data = smallIntegers(2 * 13 * 3 * 64, 3);  // [batch, rows, heads, 64]
  const TensorMap map = mapOf(data.data(), 64, 13, 3, 2, 8);
  std::vector<std::uint16_t> result(512), expected(512);
  for (std::size_t i = 0; i < 512; ++i) {
    const std::size_t row = 8 + i / 64;
    expected[i] = row < 13 ? data[((13 + row) * 3 + 2) * 64 + i % 64] : 0;
  }
  const Status status = launch({}, {1, 1, 1, Box::kSharedBytes}, Box{map, 8, 2, 1, result.data()}, "box");
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(result, expected);
}

TEST(WarpgroupModel, TensorsThatTheCopyEngineDoesNotTakeAreRefused) {
  TensorBox box;
  TensorMap map;
  box.extent[0] = 64, box.box[1] = 300;
  EXPECT_NE(makeTensorMap(box, &map).message().find("1..256"), std::string::npos);
  box.box[1] = 8, box.strideBytes[0] = 24;
  EXPECT_NE(makeTensorMap(box, &map).message().find("multiple of 16"), std::string::npos);
  box.strideBytes[0] = 128, box.data = reinterpret_cast<const void*>(std::uintptr_t{8});
  EXPECT_NE(makeTensorMap(box, &map).message().find("address"), std::string::npos);
}

enum class Fault {
  none,
  noFence,
  readEarly,
  touched,
  leftChanged,
  noWait,
  differentProducts,
  badStride,
  noSwizzle,
  outOfMemory,
  noProxyFence,
  phaseTwice,
  tooManyArrivals,
  fewerBytes,
  unpublished,
  misplacedTile,
  copyNotWaited,
  tooManyRegisters,
  wrongWay,
  namedCounts,
  namedNeverFull,
  flagTooEarly,
  flagUnfenced
};

/// Uses every instruction once, correctly but for one fault.
struct Faulty {
  static constexpr int kThreads = 3 * kWarpgroup, kWarpgroups = 3, kBarrierAt = 16384,
                       kSharedBytes = kBarrierAt + 64;
  TensorMap map;  ///< box [64, 64]
  float* sums;    ///< [4]
  std::int32_t* flag;
  Fault fault;

  template <class Thread>
  void operator()(Thread& t) const {
    auto* const barrier = reinterpret_cast<MemoryBarrier*>(t.shared() + kBarrierAt);
    if (t.x() == 0) {
      t.initBarrier(barrier, 1);
      if (fault != Fault::unpublished) t.publishBarriers();
    }
    t.sync();
    if (t.x() < kWarpgroup) {
      t.template releaseRegisters<24>();
    } else if (fault == Fault::wrongWay) {
      t.template takeRegisters<24>();
    } else if (fault == Fault::tooManyRegisters) {
      t.template takeRegisters<248>();
    } else {
      t.template takeRegisters<240>();
    }
    if (t.x() == 0) {
      t.arriveExpecting(barrier, fault == Fault::fewerBytes ? 4096 : 8192);
      if (fault == Fault::tooManyArrivals) t.arrive(barrier);
      t.copyTile(t.shared() + (fault == Fault::misplacedTile ? 128 : 0), &map, barrier, 0, 0, 0, 0);
    }
    if (fault != Fault::copyNotWaited) t.wait(barrier, 0);
    if (fault == Fault::phaseTwice) t.wait(barrier, 0);
    if (t.x() / kWarpgroup == 1) multiply(t);
    t.syncNamed(1, fault == Fault::namedCounts && t.x() < 32 ? 128 : kThreads);
    if (fault == Fault::namedNeverFull && t.x() < 32) t.arriveNamed(2, 64);
    if (t.x() == 0) announce(t);
  }
  template <class Thread>
  void multiply(Thread& t) const {
    const std::uint32_t address = t.sharedAddress(t.shared());
    float d[8][4] = {};
    std::uint32_t left[4] = {};
    t.storeShared(t.shared() + 8192 + 4 * (t.x() % kWarpgroup), std::uint32_t{0});
    if (fault != Fault::noProxyFence) t.fenceProxy();
    t.syncNamed(3, kWarpgroup);
    if (fault != Fault::noFence) t.fenceProducts();
    const std::uint32_t stride = fault == Fault::badStride ? 512 : 1024;
    std::uint64_t right =
        matrixDescriptor(address + (fault == Fault::outOfMemory ? kBarrierAt : 0), 16, stride);
    if (fault == Fault::noSwizzle) right &= ~(std::uint64_t{3} << 62);
    if (fault == Fault::differentProducts && t.x() % 32 == 7) right += 2;
    t.template multiplyRegisters<false>(d, left, right, true);
    t.template multiplyShared<false, false>(d, matrixDescriptor(address + 8192, 16, 1024),
                                            matrixDescriptor(address, 16, 1024), true);
    t.commitProducts();
    if (fault == Fault::readEarly) t.settle(d);
    if (fault == Fault::touched) d[1][1] = 1.f;
    if (fault == Fault::leftChanged) left[2] = 1;
    if (fault != Fault::noWait) t.template waitProducts<0>();
    t.settle(d);
  }
  template <class Thread>
  void announce(Thread& t) const {
    static_cast<void>(t.loadAcquire(flag));
    if (fault != Fault::flagUnfenced) t.fenceProxy();
    t.reduceAddBulk(sums, t.shared() + 8192, 16);
    t.commitBulk();
    if (fault == Fault::flagTooEarly) {
      t.waitBulkRead();
    } else {
      t.waitBulk();
    }
    t.addRelease(flag, 1);
  }
};

TEST(WarpgroupModel, FaultsAreErrors) {
  const auto data = smallIntegers(64 * 64, 4);
  const auto messageOf = [&](Fault fault) {
    std::vector<float> sums(8);
    auto* const aligned =
        reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(sums.data()) + 15) / 16 * 16);
    std::int32_t flag = 0;
    return launch({}, {1, 1, 1, Faulty::kSharedBytes},
                  Faulty{mapOf(data.data(), 64, 64, 1, 1, 64), aligned, &flag, fault}, "faulty")
        .message();
  };
  const std::pair<Fault, const char*> cases[] = {
      {Fault::noFence, "without wgmma.fence"},
      {Fault::readEarly, "read before the wait"},
      {Fault::touched, "registers of a product under way were touched"},
      {Fault::leftChanged, "left side of a product under way was changed"},
      {Fault::noWait, "read before the wait"},
      {Fault::differentProducts, "issue different products"},
      {Fault::badStride, "whole patterns of 1024 bytes"},
      {Fault::noSwizzle, "swizzle is not that of 128 bytes"},
      {Fault::outOfMemory, "out of the block's shared memory"},
      {Fault::noProxyFence, "a product reads what was stored without fence.proxy.async"},
      {Fault::phaseTwice, "waits for a phase of a barrier twice"},
      {Fault::tooManyArrivals, "more threads arrive at a barrier"},
      {Fault::fewerBytes, "wait for one another forever: for a barrier in shared memory"},
      {Fault::unpublished, "before it was published"},
      {Fault::misplacedTile, "not aligned to the 1024 bytes"},
      {Fault::tooManyRegisters, "the block was started with 64512"},
      {Fault::wrongWay, "setmaxnreg goes the other way"},
      {Fault::namedCounts, "different numbers of threads"},
      {Fault::namedNeverFull, "named barrier that never filled"},
      {Fault::flagTooEarly, "a flag is set before what it announces is written"},
      {Fault::flagUnfenced, "follows a flag of another block without fence.proxy.async"},
  };
  for (int order = 0; order < 3; ++order) {
    model::setThreadOrder(order);
    EXPECT_EQ(messageOf(Fault::none), "") << order;
    for (const auto& [fault, words] : cases) {
      const std::string message = messageOf(fault);
      EXPECT_NE(message.find(words), std::string::npos)
          << static_cast<int>(fault) << " in order " << order << ": " << message;
    }
  }
  model::setThreadOrder(0);
  EXPECT_NE(messageOf(Fault::copyNotWaited).find("copies to it are under way"), std::string::npos);
}

}  // namespace
}  // namespace internevo::cuda
