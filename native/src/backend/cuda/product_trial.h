// Who computes the products of a run: rank 0's library is asked, every rank times the answers, and all take the same.
#pragma once

#include <vector>

#include "backend/cuda/matrix_products.h"
#include "internevo/memory_space.h"
#include "internevo/stopwatch.h"

namespace internevo::cuda {

/// The library's first answers, in its own order: more of them are rarely any faster.
constexpr int kProductAnswers = 8;
/// Another answer than the first has to be this much faster: what two runs measure differs by a few per cent, and their bits should not.
constexpr std::int64_t kFasterPerCent = 97;
/// An odd number of calls of each answer is timed, in turn, after one that is not: their median counts.
constexpr int kProductRounds = 5;

/// Products of a list, each once, with operands that are null.
std::vector<MatrixProduct> productsOf(const ProductUses& uses);

/// What a trial stands on. Everything outlives it.
struct ProductTrialParts {
  MatrixProducts& products;
  MemorySpace& memory;
  Stopwatch& stopwatch;
  const Queue& queue;
  bool leads = true;  ///< this rank asks its library; exactly one does
};

/// As Backend::chooseProducts.
Status chooseProducts(const ProductTrialParts& parts, const ProductRequest& request,
                      const LargestOfRanks& largest, ProductChoices* chosen);

}  // namespace internevo::cuda
