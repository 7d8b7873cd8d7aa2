#include "emulator/model_products.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "emulator/model_memory.h"
#include "emulator/model_streams.h"

namespace internevo::cuda {

namespace {

constexpr std::uint64_t kMark = 0x6c740000;  // of the algorithms that this library gives out

/// Element by element, the terms of a sum from number `first` on and then round.
Status compute(const MatrixProduct& p, std::int64_t first) {
  const model::OpenMemory open;
  const std::int64_t aRows = p.transposeA ? p.k : p.m, bRows = p.transposeB ? p.n : p.k;
  if (p.lda < aRows || p.ldb < bRows || p.ldc < p.m) {
    return {StatusCode::badConfig, "a leading dimension is shorter than a column"};
  }
  const auto at = [](const ConstView& v, std::int64_t i) {
    return v.type == DataType::float32 ? v.as<float>()[i] : floatFromBfloat16(v.as<std::uint16_t>()[i]);
  };
  for (std::int64_t column = 0; column < p.n; ++column) {
    for (std::int64_t row = 0; row < p.m; ++row) {
      float sum = 0;
      for (std::int64_t term = 0; term < p.k; ++term) {
        const std::int64_t i = (term + first) % p.k;
        const float a = at(p.a, p.transposeA ? row * p.lda + i : i * p.lda + row);
        const float b = at(p.b, p.transposeB ? i * p.ldb + column : column * p.ldb + i);
        sum = std::fma(a, b, sum);
      }
      const std::int64_t target = column * p.ldc + row;
      if (p.accumulate) sum += at(p.c, target);
      if (p.c.type == DataType::float32) {
        p.c.as<float>()[target] = sum;
      } else {
        p.c.as<std::uint16_t>()[target] = bfloat16FromFloat(sum);
      }
    }
  }
  return Status::success();
}

class ModelProducts final : public ProductLibrary {
 public:
  explicit ModelProducts(std::vector<ModelAnswer> answers) : answers_(std::move(answers)) {}

  std::string name() const override { return "cuBLASLt of the model"; }

  /// Also those that need more scratch memory than there is: whoever takes one has not checked it.
  Status answers(const ProductProblem& problem, int most, std::vector<ProductAlgorithm>* result) override {
    result->clear();
    if (const char* const strict = std::getenv("INTERNEVO_LT_MODEL_CHOSEN"); strict != nullptr && most == 1)
      return {StatusCode::internal, "nobody has chosen who computes " + nameOf(problem)};
    for (std::size_t i = 0; i < answers_.size() && static_cast<int>(i) < most; ++i)
      result->push_back({{kMark + i}});
    return Status::success();
  }
  bool computes(const ProductProblem& problem, const ProductAlgorithm& algorithm) override {
    const ModelAnswer* const answer = answerOf(algorithm);
    return answer != nullptr && answer->computes && answer->scratchBytes <= problem.roomBytes;
  }
  Status multiply(const Queue& queue, const ProductProblem& problem, const MatrixProduct& p,
                  const ProductAlgorithm& algorithm, void* scratch) override {
    const ModelAnswer* const answer = answerOf(algorithm);
    if (answer == nullptr || answer->fails || !computes(problem, algorithm))
      return {StatusCode::internal, "the model of cuBLASLt does not support the algorithm"};
    const auto first = static_cast<std::int64_t>(algorithm.words[0] - kMark);
    return runOn(queue, "product", [p, first, scratch, one = *answer]() -> Status {
      if (one.scratchBytes > 0) {
        const model::OpenMemory open;
        std::memset(scratch, 0x5a, static_cast<std::size_t>(one.scratchBytes));
      }
      INTERNEVO_RETURN_IF_ERROR(compute(p, first));
      model::addDeviceTime(one.microseconds * 1000);
      return Status::success();
    });
  }

 private:
  const ModelAnswer* answerOf(const ProductAlgorithm& algorithm) const {
    const std::uint64_t place = algorithm.words[0] - kMark;
    return place < answers_.size() ? &answers_[static_cast<std::size_t>(place)] : nullptr;
  }

  const std::vector<ModelAnswer> answers_;
};

}  // namespace

std::vector<ModelAnswer> modelAnswersAsked(int rank) {
  const char* const asked = std::getenv("INTERNEVO_LT_MODEL");
  if (asked == nullptr || *asked == '\0') return {{}};
  std::istringstream ranks(asked);
  std::string own, each;
  for (int i = 0; i <= rank && std::getline(ranks, each, ':'); ++i) own = each;
  std::vector<ModelAnswer> answers;
  std::istringstream list(own);
  while (std::getline(list, each, ',')) {
    ModelAnswer answer;
    answer.computes = each.front() != 'x', answer.fails = each.front() == '!';
    answer.microseconds = std::atoll(each.c_str() + (each.front() == 'x' || each.front() == '!' ? 1 : 0));
    answers.push_back(answer);
  }
  return answers;
}

std::unique_ptr<ProductLibrary> createModelProducts(std::vector<ModelAnswer> answers) {
  return std::make_unique<ModelProducts>(std::move(answers));
}

}  // namespace internevo::cuda
