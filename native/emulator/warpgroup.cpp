// wgmma of the model: asynchronous products of the four warps of a warpgroup (PTX ISA 9.7.15).
//
// Found: a product without wgmma.fence after its thread changed registers; results that are touched or read before the wait for
// their group; left sides in registers that change before it; warps whose descriptors differ; operands out of shared memory, or
// written by ordinary stores without fence.proxy.async; descriptors whose swizzle, strides or base offset do not go together;
// groups that nobody waited for. A wrong address or transposition is another result.
#include "emulator/warpgroup.h"

#include <algorithm>
#include <vector>

#include "emulator/running.h"
#include "internevo/tensor.h"

namespace internevo::cuda::model {

namespace {

constexpr int kGroup = 128;
constexpr std::uint32_t kNaN = 0xffffffffu;

/// Registers of one thread that products in flight write: what they will hold.
struct Flight {
  float* registers;
  std::vector<float> values;
  std::int64_t lastProduct;
};
struct LeftInFlight {
  const std::uint32_t* words;
  std::uint32_t held[4];
  std::int64_t product;
};
struct Thread {
  std::int64_t issued = 0;           // products
  std::vector<std::int64_t> groups;  // committed and not waited for: products issued until each
  std::vector<Flight> flights;
  std::vector<LeftInFlight> lefts;
  bool fenced = false;
};
struct Product {
  ProductLane lanes[kGroup];
  std::uint32_t words[kGroup][4];
  int arrived = 0;
};
struct Warpgroup {
  std::vector<Product> products;  // those not yet computed
  std::int64_t computed = 0;
};

std::vector<Thread> threads;
std::vector<Warpgroup> warpgroups;

Thread& self() { return threads[static_cast<std::size_t>(currentThread())]; }
Warpgroup& ownGroup() { return warpgroups[static_cast<std::size_t>(currentThread() / kGroup)]; }

/// Where a descriptor (PTX ISA 9.7.15.5.1.2.2) places element (row, k) of an operand; rows are those of A, or columns of B.
class Operand {
 public:
  Operand(std::uint64_t descriptor, bool transposed)
      : start_(static_cast<std::uint32_t>(descriptor & 0x3fff) << 4),
        leading_(static_cast<std::uint32_t>(descriptor >> 16 & 0x3fff) << 4),
        stride_(static_cast<std::uint32_t>(descriptor >> 32 & 0x3fff) << 4),
        transposed_(transposed) {
    if (descriptor >> 62 != 1)
      failBlock("a descriptor's swizzle is not that of 128 bytes: the model knows no other");
    if ((descriptor >> 49 & 7) != 0)
      failBlock("a descriptor has a base offset, and patterns here begin at 1024 bytes");
    if (stride_ == 0 || stride_ % 1024 != 0)
      failBlock("a descriptor's stride is not that of whole patterns of 1024 bytes");
  }

  /// Address of the 16 bytes with elements (row, 8·i…) of a row-wise operand, (8·i…, k) of a transposed one.
  std::uint32_t chunk(int row, int k) const {
    const auto r = static_cast<std::uint32_t>(row), c = static_cast<std::uint32_t>(k);
    const std::uint32_t plain = transposed_
                                    ? start_ + r / 64 * leading_ + r % 64 * 2 + c % 8 * 128 + c / 8 * stride_
                                    : start_ + r / 8 * stride_ + r % 8 * 128 + c * 2;
    return plain ^ (plain >> 7 & 7) << 4;
  }
  /// Checks that a transposed operand of more than 64 rows says where the next 64 are.
  void requireLeading(int rows) const {
    if (transposed_ && rows > 64 && (leading_ == 0 || leading_ % 1024 != 0)) {
      failBlock("a descriptor of more than 64 transposed rows has no leading offset of whole patterns");
    }
  }

  /// rows × 16 elements as float32, [k][row].
  void read(int rows, float* result) const {
    requireLeading(rows);
    const int outer = transposed_ ? 16 : rows, inner = transposed_ ? rows : 16;
    for (int i = 0; i < outer; ++i) {
      for (int j = 0; j < inner; j += 8) {
        const std::uint32_t address = transposed_ ? chunk(j, i) : chunk(i, j);
        if (address % 16 != 0) failBlock("an operand's rows are not aligned to 16 bytes");
        requireFenced(address, 16, "a product");
        const auto* const source = reinterpret_cast<const std::uint16_t*>(sharedByte(address));
        static_cast<void>(sharedByte(address + 15));
        for (int e = 0; e < 8; ++e) {
          const int row = transposed_ ? j + e : i, k = transposed_ ? i : j + e;
          result[k * rows + row] = floatFromBfloat16(source[e]);
        }
      }
    }
  }

 private:
  std::uint32_t start_, leading_, stride_;
  bool transposed_;
};

Flight* flightOf(Thread& thread, const float* registers) {
  for (Flight& f : thread.flights) {
    if (f.registers == registers) return &f;
  }
  return nullptr;
}

bool poisoned(const Flight& f) {
  return std::all_of(f.registers, f.registers + f.values.size(), [](float v) {
    std::uint32_t bits;
    std::memcpy(&bits, &v, 4);
    return bits == kNaN;
  });
}

/// D fragments of m64nN (PTX ISA 9.7.15.5.1.1): thread l of warp w has rows 16·w + l / 4 and + 8, columns 8·j + 2·(l mod 4) and + 1.
void compute(int first, Product& p) {
  const ProductLane& one = p.lanes[0];
  const int n = one.n;
  static std::vector<float> a, b, d;
  a.assign(16 * 64, 0.f), b.assign(static_cast<std::size_t>(16 * n), 0.f),
      d.assign(static_cast<std::size_t>(64 * n), 0.f);
  if (one.leftWords == nullptr) {
    Operand(one.left, one.leftTransposed).read(64, a.data());
  } else {
    for (int t = 0; t < kGroup; ++t) {
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * (t / 32) + t % 32 / 4 + i % 2 * 8, k = t % 4 * 2 + i / 2 * 8;
        a[static_cast<std::size_t>(k * 64 + row)] =
            floatFromBfloat16(static_cast<std::uint16_t>(p.words[t][i]));
        a[static_cast<std::size_t>((k + 1) * 64 + row)] =
            floatFromBfloat16(static_cast<std::uint16_t>(p.words[t][i] >> 16));
      }
    }
  }
  Operand(one.right, one.rightTransposed).read(n, b.data());
  for (int row = 0; row < 64; ++row) {
    float* const target = d.data() + row * n;
    for (int k = 0; k < 16; ++k) {
      const float left = a[static_cast<std::size_t>(k * 64 + row)];
      const float* const right = b.data() + k * n;
      for (int column = 0; column < n; ++column) target[column] += left * right[column];
    }
  }
  for (int t = 0; t < kGroup; ++t) {
    Flight* const f = flightOf(threads[static_cast<std::size_t>(first + t)], p.lanes[t].d);
    for (int i = 0; i < n / 2; ++i) {
      const int row = 16 * (t / 32) + t % 32 / 4 + i / 2 % 2 * 8, column = 8 * (i / 4) + t % 4 * 2 + i % 2;
      float& value = f->values[static_cast<std::size_t>(i)];
      value = d[static_cast<std::size_t>(row * n + column)] + (p.lanes[t].accumulate ? value : 0.f);
    }
  }
}

/// Computes what all threads have issued, up to product `until`; false where some have not.
bool computeUntil(int first, Warpgroup& group, std::int64_t until) {
  while (group.computed < until) {
    if (group.products.empty() || group.products.front().arrived < kGroup) return false;
    compute(first, group.products.front());
    group.products.erase(group.products.begin());
    ++group.computed;
    noteProgress();
  }
  return true;
}

}  // namespace

void beginProducts(int count) {
  threads.assign(static_cast<std::size_t>(count), {});
  warpgroups.assign(static_cast<std::size_t>((count + kGroup - 1) / kGroup), {});
}

void endProducts() {
  for (const Thread& t : threads) {
    if (!t.flights.empty() || !t.lefts.empty()) failBlock("a block ends while its products are under way");
  }
}

void touchRegisters() { self().fenced = false; }
void fenceProducts() { self().fenced = true; }

void issueProduct(const ProductLane& lane) {
  Thread& t = self();
  Warpgroup& group = ownGroup();
  if (!t.fenced) failBlock("a product is issued without wgmma.fence after registers were written");
  if (threadsOfBlock() % kGroup != 0) failBlock("a block that multiplies is not made of whole warpgroups");
  const auto place = static_cast<std::size_t>(t.issued - group.computed);
  if (group.products.size() <= place) group.products.resize(place + 1);
  Product& p = group.products[place];
  const int own = currentThread() % kGroup;
  if (p.arrived > 0) {
    const auto same = [&](const ProductLane& o) {
      return o.n == lane.n && o.left == lane.left && o.right == lane.right &&
             o.accumulate == lane.accumulate && o.leftTransposed == lane.leftTransposed &&
             o.rightTransposed == lane.rightTransposed &&
             (o.leftWords == nullptr) == (lane.leftWords == nullptr);
    };
    for (int i = 0; i < kGroup; ++i) {
      if (p.lanes[i].d != nullptr && !same(p.lanes[i]))
        failBlock("threads of a warpgroup issue different products");
    }
  }
  p.lanes[own] = lane;
  Flight* flight = flightOf(t, lane.d);
  const auto count = static_cast<std::size_t>(lane.n / 2);
  if (flight == nullptr) {
    t.flights.push_back({lane.d, std::vector<float>(lane.d, lane.d + count), t.issued});
    std::memset(lane.d, 0xff, 4 * count);
  } else if (flight->values.size() != count || !poisoned(*flight)) {
    failBlock("registers of a product under way were touched");
  } else {
    flight->lastProduct = t.issued;
  }
  if (lane.leftWords != nullptr) {
    LeftInFlight left{lane.leftWords, {}, t.issued};
    std::memcpy(left.held, lane.leftWords, sizeof left.held);
    std::memcpy(p.words[own], lane.leftWords, sizeof left.held);
    t.lefts.push_back(left);
  }
  ++t.issued;
  noteProgress();
  if (++p.arrived == kGroup && orderOfRun() == 1)
    computeUntil(currentThread() / kGroup * kGroup, group, t.issued);
}

void commitProducts() { self().groups.push_back(self().issued); }

void waitProducts(int newest) {
  const int own = currentThread();
  while (self().groups.size() > static_cast<std::size_t>(newest)) {
    const std::int64_t until = self().groups.front();
    while (!computeUntil(own / kGroup * kGroup, ownGroup(), until)) {
      noteWait("for products that not all warps of a warpgroup have issued");
      yieldThread();
    }
    Thread& t = self();
    t.groups.erase(t.groups.begin());
    for (std::size_t i = 0; i < t.lefts.size();) {
      if (t.lefts[i].product >= until) {
        ++i;
        continue;
      }
      if (std::memcmp(t.lefts[i].words, t.lefts[i].held, sizeof t.lefts[i].held) != 0) {
        failBlock("the left side of a product under way was changed");
      }
      t.lefts.erase(t.lefts.begin() + static_cast<std::ptrdiff_t>(i));
    }
    for (std::size_t i = 0; i < t.flights.size();) {
      Flight& f = t.flights[i];
      if (f.lastProduct >= until) {
        ++i;
        continue;
      }
      if (!poisoned(f)) failBlock("registers of a product under way were touched");
      std::memcpy(f.registers, f.values.data(), 4 * f.values.size());
      t.flights.erase(t.flights.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  touchRegisters();
}

void requireSettled(const float* d, int count) {
  const Flight* const f = flightOf(self(), d);
  if (f != nullptr && static_cast<int>(f->values.size()) == count)
    failBlock("results are read before the wait for their products");
}

}  // namespace internevo::cuda::model
