// The matrix products of a backend: a library computes them, by the algorithm that was chosen for a problem, or by its first answer.
#pragma once

#include <map>
#include <memory>

#include "backend/cuda/product_library.h"
#include "internevo/backend.h"

namespace internevo::cuda {

class MatrixProducts {
 public:
  explicit MatrixProducts(std::unique_ptr<ProductLibrary> library) : library_(std::move(library)) {}

  /// Errors: badConfig for types that do not go together; internal, also for a product that the library does not compute.
  Status multiply(const Queue& queue, const MatrixProduct& product, Workspace workspace);

  /// From here on the problem is computed so: its bits do not change in a run.
  void choose(const ProductProblem& problem, const ProductAlgorithm& algorithm) {
    chosen_[problem] = algorithm;
  }
  /// So many are left to products from here on; 0: all. Algorithms are chosen for a number of them.
  void setMultiprocessors(int count) { multiprocessors_ = count; }
  ProductProblem problemOf(const MatrixProduct& product, std::int64_t roomBytes) const;
  ProductLibrary& library() { return *library_; }

 private:
  std::unique_ptr<ProductLibrary> library_;
  std::map<ProductProblem, ProductAlgorithm> chosen_;
  int multiprocessors_ = 0;
};

}  // namespace internevo::cuda
