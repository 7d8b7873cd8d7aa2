#include "backend/cuda/matrix_products.h"

#include <algorithm>
#include <cstdio>

#include "backend/cuda/sizes.h"

namespace internevo::cuda {

namespace {

std::int64_t alignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::int64_t alignment = kProductAlignment;
  while (address % static_cast<std::uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

const char* nameOf(DataType type) { return type == DataType::float32 ? "fp32" : "bf16"; }

}  // namespace

/// A pointer that is null is as an operand at the beginning of a piece.
ProductProblem MatrixProducts::problemOf(const MatrixProduct& p, std::int64_t roomBytes) const {
  return {p.m,
          p.n,
          p.k,
          p.lda,
          p.ldb,
          p.ldc,
          p.transposeA,
          p.transposeB,
          p.accumulate,
          p.a.type,
          p.c.type,
          alignmentOf(p.a.data),
          alignmentOf(p.b.data),
          alignmentOf(p.c.data),
          roomBytes,
          multiprocessors_};
}

std::string nameOf(const ProductProblem& p) {
  const auto list = [](std::int64_t a, std::int64_t b, std::int64_t c, const char* between) {
    return std::to_string(a) + between + std::to_string(b) + between + std::to_string(c);
  };
  return std::string(nameOf(p.type)) + " " + (p.transposeA ? "T" : "N") + (p.transposeB ? "T" : "N") + " " +
         list(p.m, p.n, p.k, " x ") + (p.accumulate ? " added to " : " to ") + nameOf(p.resultType) +
         ", strides " + list(p.lda, p.ldb, p.ldc, "/") + ", aligned " +
         list(p.alignmentA, p.alignmentB, p.alignmentC, "/") + ", scratch " + std::to_string(p.roomBytes) +
         (p.multiprocessors > 0 ? ", on " + std::to_string(p.multiprocessors) + " multiprocessors" : "");
}

std::string textOf(const ProductAlgorithm& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.words) {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(word));
    text += digits;
  }
  return text;
}

bool algorithmOf(const std::string& text, ProductAlgorithm* algorithm) {
  constexpr std::size_t kDigits = 16;
  if (text.size() != kDigits * algorithm->words.size() ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos)
    return false;
  for (std::size_t i = 0; i < algorithm->words.size(); ++i)
    algorithm->words[i] = std::stoull(text.substr(i * kDigits, kDigits), nullptr, 16);
  return true;
}

Status MatrixProducts::multiply(const Queue& queue, const MatrixProduct& p, Workspace workspace) {
  if (p.a.type != p.b.type || (p.a.type == DataType::float32 && p.c.type != DataType::float32)) {
    return {StatusCode::badConfig,
            "a product of float32 has a float32 result, and both sides are of one type"};
  }
  const ProductProblem problem = problemOf(p, std::min(workspace.bytes, kMatrixWorkspaceBytes));
  auto found = chosen_.find(problem);
  if (found == chosen_.end()) {
    std::vector<ProductAlgorithm> answers;
    INTERNEVO_RETURN_IF_ERROR(library_->answers(problem, 1, &answers));
    if (answers.empty())
      return {StatusCode::internal,
              library_->name() + " has no algorithm for a product of " + nameOf(problem)};
    found = chosen_.emplace(problem, answers.front()).first;
  }
  return library_->multiply(queue, problem, p, found->second, workspace.data);
}

}  // namespace internevo::cuda
