// The matrix product of one compilation of the CPU backend.
#include "backend/cpu/gemm.h"

#include <array>
#include <cmath>

#include "backend/cpu/gemm_bfloat16.h"
#include "ops/support.h"

namespace internevo::test {
namespace {

/// Whole numbers, so that sums are exact: over the borders of blocks of rows, columns and depth, with either index of an operand in
/// one piece, added to what is there. What is behind a matrix is not a number.
TEST(Gemm, BlocksOfEverySizeAreWhole) {
  for (const DataType typeOfC : {DataType::float32, DataType::bfloat16}) {
    for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{
             {49, 769, 257}, {97, 1025, 40}, {725, 33, 513}, {13, 1537, 256}, {241, 800, 3}}) {
      for (const bool across : {false, true}) {
        Values a(static_cast<std::size_t>(m * k + m + k), std::nan("")),
            b(static_cast<std::size_t>(n * k + n + k), std::nan(""));
        for (std::int64_t i = 0; i < m * k; ++i)
          a[static_cast<std::size_t>(i)] = static_cast<double>(i * 7 % 5) - 2;
        for (std::int64_t i = 0; i < n * k; ++i)
          b[static_cast<std::size_t>(i)] = static_cast<double>(i * 5 % 3) - 1;
        const Buffer left(DataType::float32, a), right(DataType::float32, b),
            c(typeOfC, Values(static_cast<std::size_t>(m * n), 1.0));
        const Buffer scratch(2 * cpu::gemmWorkspaceBytesPerThread());
        cpu::gemm({m, n, k, left.view(), across ? 1 : k, across ? m : 1, right.view(), across ? n : 1,
                   across ? 1 : k, c.view(), n, true},
                  2, scratch.view().data);
        Values expected(static_cast<std::size_t>(m * n), 1.0);
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < n; ++j) {
            for (std::int64_t p = 0; p < k; ++p)
              expected[i * n + j] += a[across ? p * m + i : i * k + p] * b[across ? p * n + j : j * k + p];
          }
        }
        EXPECT_EQ(c.values(), roundedTo(expected, typeOfC))
            << m << " × " << n << " × " << k << (across ? ", across" : "");
      }
    }
  }
}

/// Both ways to multiply bfloat16, where the machine has them: whole numbers exactly, at every border and with either index of
/// an operand in one piece; others as near to the sum as adding two products at a time in float32 is.
TEST(Gemm, EveryProductOfBfloat16IsTheSum) {
  using cpu::Bfloat16Product;
  if (cpu::bfloat16Product() == Bfloat16Product::none) GTEST_SKIP() << "bfloat16 is computed in float32";
  const auto product = [](Bfloat16Product by, std::int64_t m, std::int64_t n, std::int64_t k, bool across,
                          const Values& a, const Values& b) {
    Values behind(static_cast<std::size_t>(k + m + n), std::nan(""));
    Values withA = a, withB = b;
    withA.insert(withA.end(), behind.begin(), behind.end()),
        withB.insert(withB.end(), behind.begin(), behind.end());
    const Buffer left(DataType::bfloat16, withA), right(DataType::bfloat16, withB),
        c(DataType::float32, Values(static_cast<std::size_t>(m * n), 1.0));
    // Across: what a product of transposed operands reads.
    const cpu::Gemm g{m,
                      n,
                      k,
                      left.view(),
                      across ? 1 : k,
                      across ? m : 1,
                      right.view(),
                      across ? n : 1,
                      across ? 1 : k,
                      c.view(),
                      n,
                      true};
    const Buffer scratch(4 * cpu::kBfloat16ProductWords);
    const cpu::Bfloat16Tiles tiles(by);
    // In two parts, as two threads would.
    cpu::bfloat16Part(by, g, 0, m / 2, 0, n, scratch.view().as<float>());
    cpu::bfloat16Part(by, g, m / 2, m, 0, n, scratch.view().as<float>());
    return c.values();
  };
  for (const Bfloat16Product by : {Bfloat16Product::vectors, Bfloat16Product::tiles}) {
    if (by > cpu::bfloat16Product()) continue;
    for (const bool across : {false, true}) {
      for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{{1, 1, 1},
                                                                            {16, 16, 32},
                                                                            {17, 33, 31},
                                                                            {33, 15, 65},
                                                                            {65, 49, 256},
                                                                            {130, 70, 259},
                                                                            {31, 64, 513},
                                                                            {1, 530, 40},
                                                                            {1420, 3, 33},
                                                                            {90, 545, 40},
                                                                            {1060, 40, 515},
                                                                            {40, 545, 515}}) {
        Values a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(n * k));
        for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(i * 7 % 9) - 4;
        for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>(i * 5 % 7) - 3;
        const auto at = [&](const Values& of, std::int64_t lanes, std::int64_t lane, std::int64_t p) {
          return of[across ? p * lanes + lane : lane * k + p];
        };
        const auto sums = [&](const Values& x, const Values& y, const auto& term) {
          Values all(static_cast<std::size_t>(m * n), 1.0);
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j)
              for (std::int64_t p = 0; p < k; ++p) all[i * n + j] += term(at(x, m, i, p) * at(y, n, j, p));
          return all;
        };
        EXPECT_EQ(product(by, m, n, k, across, a, b), sums(a, b, [](double each) { return each; }))
            << m << " × " << n << " × " << k << (across ? ", across" : "");
        const Values u = roundedTo(randomValues(m * k, 1), DataType::bfloat16),
                     v = roundedTo(randomValues(n * k, 2), DataType::bfloat16);
        const Values found = product(by, m, n, k, across, u, v),
                     exact = sums(u, v, [](double each) { return each; }),
                     size = sums(u, v, [](double each) { return std::abs(each); });
        for (std::size_t i = 0; i < found.size(); ++i)
          EXPECT_NEAR(found[i], exact[i], 1e-6 * std::sqrt(static_cast<double>(k)) * size[i]);
      }
    }
  }
}

}  // namespace
}  // namespace internevo::test
