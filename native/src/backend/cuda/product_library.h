// Matrix products by a library that answers a problem with several algorithms: cuBLASLt (device/lt_products.cpp), and its meaning on
// the model of a device (emulator/model_products.cpp). Host code without CUDA.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/matrix.h"
#include "backend/cuda/queue.h"
#include "internevo/status.h"

namespace internevo::cuda {

/// All that the choice of an algorithm depends on.
struct ProductProblem {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  bool transposeA = false, transposeB = false, accumulate = false;
  DataType type = DataType::float32, resultType = DataType::float32;
  std::int64_t alignmentA = 0, alignmentB = 0, alignmentC = 0;  ///< bytes
  std::int64_t roomBytes = 0;                                   ///< of scratch memory
  int multiprocessors = 0;                                      ///< left to it; 0: all
  auto operator<=>(const ProductProblem&) const = default;
};

/// Pieces of the arena begin at its multiples. What is aligned better is so by chance, and other layers are not.
constexpr std::int64_t kProductAlignment = kAlignmentBytes;

/// "bf16 TN 4096 x 8192 x 4096 ..." with every member.
std::string nameOf(const ProductProblem& problem);

/// As the library writes it down: it means something to the same release on the same kind of device only.
struct ProductAlgorithm {
  std::array<std::uint64_t, 8> words{};
  bool operator==(const ProductAlgorithm&) const = default;
};
/// Hexadecimal, and back. False for a text that is none.
std::string textOf(const ProductAlgorithm& algorithm);
bool algorithmOf(const std::string& text, ProductAlgorithm* algorithm);

class ProductLibrary {
 public:
  virtual ~ProductLibrary() = default;
  /// With its release, the device, and whatever else an algorithm depends on that no problem has.
  virtual std::string name() const = 0;
  /// At most `most` algorithms, the one that it takes for the fastest first; none for a problem that it does not compute.
  /// Each needs no more scratch memory than the problem's room. Errors: internal.
  virtual Status answers(const ProductProblem& problem, int most, std::vector<ProductAlgorithm>* result) = 0;
  /// Whether the algorithm computes the problem on this device, within the problem's room.
  virtual bool computes(const ProductProblem& problem, const ProductAlgorithm& algorithm) = 0;
  /// Errors: internal.
  virtual Status multiply(const Queue& queue, const ProductProblem& problem, const MatrixProduct& product,
                          const ProductAlgorithm& algorithm, void* scratch) = 0;
};

}  // namespace internevo::cuda
