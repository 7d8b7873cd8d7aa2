// The matrix products of a run, and who computes each: for backends that have several ways to compute one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "internevo/tensor.h"

namespace internevo {

/// A product that a run will often compute, as Backend's calls have it.
struct LinearUse {
  std::int64_t rows = 0, inputs = 0, outputs = 0;
  DataType type = DataType::float32;  ///< of x, w, y and gX
  bool forward = true, backward = true;
  DataType gradientType = DataType::float32;  ///< of gW
};
/// The products of a head whose logits exist by `chunkRows` rows at a time.
struct HeadUse {
  std::int64_t rows = 0, width = 0, vocabulary = 0, chunkRows = 0;
  DataType type = DataType::float32;
  DataType gradientType = DataType::float32;  ///< of gW
};
/// The same list in the same order on all ranks, whether a rank computes all of them or not.
struct ProductUses {
  std::vector<LinearUse> linear;
  std::vector<HeadUse> heads;
};

/// Who computes one product.
struct ProductChoice {
  std::string product;    ///< everything that the choice depends on, as text
  std::string algorithm;  ///< as the library writes it down, hexadecimal
  int answer = 0;         ///< its place among the library's answers, from 0
  int answers = 1;        ///< that were compared
  bool recorded = false;  ///< taken as it was recorded
  /// Of the slowest rank, the median of several calls; 0 where there was nothing to compare.
  double seconds = 0, firstSeconds = 0;
};
struct ProductChoices {
  std::string library;  ///< with its release and the device: elsewhere an algorithm means something else
  std::vector<ProductChoice> products;
  bool empty() const { return products.empty(); }
};

enum class ProductSearch {
  timed,  ///< recorded choices as they are, the rest by timing the library's answers
  first,  ///< the library's first answers
  fixed   ///< recorded choices alone
};
struct ProductRequest {
  ProductUses uses;
  ProductSearch search = ProductSearch::timed;
  ProductChoices recorded;  ///< those of rank 0 count
  Workspace memory;         ///< for operands; its contents are lost, and it holds zeros afterwards
};

}  // namespace internevo
