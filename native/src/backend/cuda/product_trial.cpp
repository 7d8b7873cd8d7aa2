#include "backend/cuda/product_trial.h"

#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include "backend/cuda/sizes.h"

namespace internevo::cuda {

namespace {

/// Operands begin at its multiples, those of kProductAlignment among them.
constexpr std::int64_t kOperandAlignment = 256;
/// Values of operands repeat after so many, a prime: columns do not. Zeros would be multiplied with less power, and so faster.
constexpr std::int64_t kSeedElements = 65521;

constexpr std::int64_t kNothing = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kAlgorithmWords = std::tuple_size_v<decltype(ProductAlgorithm::words)>;
/// Of a product: how many answers, whether they are a recorded one, and the answers.
constexpr std::int64_t kProductWords = 2 + kProductAnswers * kAlgorithmWords;

struct Candidates {
  MatrixProduct product;
  ProductProblem problem;
  bool recorded = false;
  std::vector<ProductAlgorithm> answers;
  std::int64_t* times = nullptr;  ///< nanoseconds [answers]
};

class Trial {
 public:
  Trial(const ProductTrialParts& parts, const ProductRequest& request) : parts_(parts), request_(request) {
    for (const MatrixProduct& product : productsOf(request.uses))
      candidates_.push_back(
          {product, parts.products.problemOf(product, kMatrixWorkspaceBytes), false, {}, nullptr});
    words_.assign(candidates_.size() * kProductWords, kNothing);
    times_.assign(candidates_.size() * kProductAnswers, 0);
    for (std::size_t i = 0; i < candidates_.size(); ++i)
      candidates_[i].times = times_.data() + i * kProductAnswers;
  }

  Status ask();
  void tell();
  Status time();
  Status conclude(ProductChoices* chosen);
  std::vector<std::int64_t>& words() { return words_; }
  std::vector<std::int64_t>& times() { return times_; }

 private:
  Status askFor(Candidates* of);
  Status timeOne(Candidates* of, bool* touched);
  Status place(Candidates* of, bool* fits);
  Status call(const Candidates& of, std::size_t answer, double* seconds);

  const ProductTrialParts& parts_;
  const ProductRequest& request_;
  std::vector<Candidates> candidates_;
  std::vector<std::int64_t> words_, times_;
};

ProductLibrary& libraryOf(const ProductTrialParts& parts) { return parts.products.library(); }

/// Elements of a matrix, column after column.
std::int64_t elementsOf(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return (columns - 1) * stride + rows;
}

Status Trial::askFor(Candidates* of) {
  const std::string name = nameOf(of->problem), library = libraryOf(parts_).name();
  for (const ProductChoice& each : request_.recorded.products) {
    ProductAlgorithm algorithm;
    // An algorithm of another release or device is not even looked at.
    if (request_.recorded.library != library) break;
    if (each.product != name || !algorithmOf(each.algorithm, &algorithm)) continue;
    if (!libraryOf(parts_).computes(of->problem, algorithm)) continue;
    of->recorded = true, of->answers = {algorithm};
    return Status::success();
  }
  if (request_.search == ProductSearch::fixed) {
    return {StatusCode::badConfig, "the recorded choices have no algorithm of " + library +
                                       " for the product " + name +
                                       "; record them with a run of this configuration on this machine"};
  }
  return libraryOf(parts_).answers(of->problem, request_.search == ProductSearch::first ? 1 : kProductAnswers,
                                   &of->answers);
}

/// By the rank that leads.
Status Trial::ask() {
  if (!parts_.leads) return Status::success();
  std::int64_t* words = words_.data();
  for (Candidates& each : candidates_) {
    INTERNEVO_RETURN_IF_ERROR(askFor(&each));
    words[0] = static_cast<std::int64_t>(each.answers.size()), words[1] = each.recorded ? 1 : 0;
    for (std::size_t a = 0; a < each.answers.size(); ++a)
      std::copy(each.answers[a].words.begin(), each.answers[a].words.end(),
                words + 2 + static_cast<std::int64_t>(a) * kAlgorithmWords);
    words += kProductWords;
  }
  return Status::success();
}

/// What the rank that leads has said.
void Trial::tell() {
  const std::int64_t* words = words_.data();
  for (Candidates& each : candidates_) {
    each.answers.assign(static_cast<std::size_t>(std::clamp<std::int64_t>(words[0], 0, kProductAnswers)), {});
    each.recorded = words[1] == 1;
    for (std::size_t a = 0; a < each.answers.size(); ++a) {
      const std::int64_t* const from = words + 2 + static_cast<std::int64_t>(a) * kAlgorithmWords;
      std::copy(from, from + kAlgorithmWords, each.answers[a].words.begin());
    }
    words += kProductWords;
  }
}

/// Scratch memory, the values that are repeated, then both sides and the result.
Status Trial::place(Candidates* of, bool* fits) {
  MatrixProduct& p = of->product;
  auto* const base = static_cast<std::byte*>(request_.memory.data);
  std::int64_t at = alignUp(of->problem.roomBytes, kOperandAlignment);
  const std::int64_t seed = at;
  at += alignUp(2 * kSeedElements, kOperandAlignment);
  const auto take = [&](std::int64_t elements, DataType type) {
    const std::int64_t begin = at;
    at += alignUp(elements * bytesPerElement(type), kOperandAlignment);
    return View{base + begin, type};
  };
  const std::int64_t a = elementsOf(p.transposeA ? p.k : p.m, p.transposeA ? p.m : p.k, p.lda),
                     b = elementsOf(p.transposeB ? p.n : p.k, p.transposeB ? p.k : p.n, p.ldb);
  const View left = take(a, p.a.type), right = take(b, p.b.type);
  p.a = left, p.b = right, p.c = take(elementsOf(p.m, p.n, p.ldc), p.c.type);
  *fits = base != nullptr && at <= request_.memory.bytes;
  if (!*fits) return Status::success();
  // The upper half of such a float32 is one of these values, so both types have finite ones.
  std::mt19937 random(1);
  std::vector<std::uint16_t> values(kSeedElements);
  for (auto& value : values) value = bfloat16FromFloat(static_cast<float>(random()) * 0x1p-30f - 2.f);
  INTERNEVO_RETURN_IF_ERROR(parts_.memory.upload(base + seed, values.data(), 2 * kSeedElements));
  for (const auto& [view, elements] : {std::pair{left, a}, std::pair{right, b}}) {
    const std::int64_t bytes = elements * bytesPerElement(view.type);
    std::int64_t done = std::min(bytes, 2 * kSeedElements);
    INTERNEVO_RETURN_IF_ERROR(parts_.memory.copy(view.data, base + seed, done));
    for (; done < bytes; done *= 2) {
      INTERNEVO_RETURN_IF_ERROR(parts_.memory.copy(static_cast<std::byte*>(view.data) + done, view.data,
                                                   std::min(done, bytes - done)));
    }
  }
  return Status::success();
}

Status Trial::call(const Candidates& of, std::size_t answer, double* seconds) {
  INTERNEVO_RETURN_IF_ERROR(parts_.stopwatch.start());
  const Status done = libraryOf(parts_).multiply(parts_.queue, of.problem, of.product, of.answers[answer],
                                                 request_.memory.data);
  INTERNEVO_RETURN_IF_ERROR(parts_.stopwatch.stop(seconds));
  return done;
}

/// A rank whose memory has no room for the operands leaves the choice to the others.
Status Trial::timeOne(Candidates* of, bool* touched) {
  const std::size_t count = of->answers.size();
  for (std::size_t a = 0; a < count; ++a)
    of->times[a] = libraryOf(parts_).computes(of->problem, of->answers[a]) ? 0 : kNever;
  if (count < 2) return Status::success();
  bool fits = false;
  INTERNEVO_RETURN_IF_ERROR(place(of, &fits));
  if (!fits) return Status::success();
  *touched = true;
  std::vector<std::vector<double>> seconds(count);
  for (int round = 0; round <= kProductRounds; ++round) {
    for (std::size_t a = 0; a < count; ++a) {
      double one = 0;
      if (of->times[a] == kNever) continue;
      // What an answer cannot do shows at its call only: it is left out.
      if (!call(*of, a, &one).ok()) {
        of->times[a] = kNever;
      } else if (round > 0) {
        seconds[a].push_back(one);
      }
    }
  }
  for (std::size_t a = 0; a < count; ++a) {
    if (of->times[a] == kNever) continue;
    std::nth_element(seconds[a].begin(), seconds[a].begin() + kProductRounds / 2, seconds[a].end());
    of->times[a] = static_cast<std::int64_t>(seconds[a][kProductRounds / 2] * 1e9) + 1;
  }
  return Status::success();
}

Status Trial::time() {
  bool touched = false;
  for (Candidates& each : candidates_) INTERNEVO_RETURN_IF_ERROR(timeOne(&each, &touched));
  return touched ? parts_.memory.zero(request_.memory.data, request_.memory.bytes) : Status::success();
}

/// The times are those of the slowest rank of each answer: a step waits for that one.
Status Trial::conclude(ProductChoices* chosen) {
  *chosen = {libraryOf(parts_).name(), {}};
  for (Candidates& each : candidates_) {
    const std::int64_t *const begin = each.times, *const end = begin + each.answers.size();
    const std::int64_t* const first = std::find_if(begin, end, [](auto t) { return t != kNever; });
    if (first == end) {
      return {StatusCode::internal, libraryOf(parts_).name() +
                                        " has no algorithm that every rank can run for a product of " +
                                        nameOf(each.problem)};
    }
    const std::int64_t* const fastest = std::min_element(begin, end);
    const std::int64_t* const taken = *fastest < *first / 100 * kFasterPerCent ? fastest : first;
    const auto answer = static_cast<std::size_t>(taken - begin);
    parts_.products.choose(each.problem, each.answers[answer]);
    chosen->products.push_back({nameOf(each.problem), textOf(each.answers[answer]), static_cast<int>(answer),
                                static_cast<int>(each.answers.size()), each.recorded,
                                1e-9 * static_cast<double>(*taken), 1e-9 * static_cast<double>(*first)});
  }
  return Status::success();
}

}  // namespace

std::vector<MatrixProduct> productsOf(const ProductUses& uses) {
  std::vector<MatrixProduct> all;
  const MatrixProducts nobodys(nullptr);
  std::set<ProductProblem> known;
  const auto add = [&](const MatrixProduct& product) {
    if (known.insert(nobodys.problemOf(product, 0)).second) all.push_back(product);
  };
  const auto addLinear = [&](const LinearShape& s, DataType type, DataType results, DataType gradients,
                             bool forward, bool backward) {
    const ConstView of{nullptr, type};
    const LinearShape dense{s.rows, s.inputs, s.outputs, s.inputs, s.outputs};
    if (forward) add(forwardProduct(dense, of, of, {nullptr, results}));
    if (!backward) return;
    add(weightGradientProduct(s, of, of, {nullptr, gradients}));
    add(inputGradientProduct(s, of, of, {nullptr, type}, false));
  };
  for (const LinearUse& u : uses.linear)
    addLinear({u.rows, u.inputs, u.outputs, u.inputs, u.outputs}, u.type, u.type, u.gradientType, u.forward,
              u.backward);
  for (const HeadUse& u : uses.heads) {
    for (const std::int64_t rows : {std::min(u.chunkRows, u.rows), u.rows % u.chunkRows}) {
      // The gradient of logits stands where they stood, as CudaBackend::gradientsOfHead has it.
      if (rows > 0)
        addLinear({rows, u.width, u.vocabulary, u.width, headGradientStride(u.type, u.vocabulary)}, u.type,
                  DataType::float32, u.gradientType, true, true);
    }
  }
  return all;
}

Status chooseProducts(const ProductTrialParts& parts, const ProductRequest& request,
                      const LargestOfRanks& largest, ProductChoices* chosen) {
  Trial trial(parts, request);
  // Whatever happens to a rank, the others wait for its words.
  const Status asked = trial.ask();
  INTERNEVO_RETURN_IF_ERROR(largest(trial.words().data(), static_cast<int>(trial.words().size())));
  trial.tell();
  const Status timed = trial.time();
  INTERNEVO_RETURN_IF_ERROR(largest(trial.times().data(), static_cast<int>(trial.times().size())));
  INTERNEVO_RETURN_IF_ERROR(asked);
  INTERNEVO_RETURN_IF_ERROR(timed);
  return trial.conclude(chosen);
}

}  // namespace internevo::cuda
