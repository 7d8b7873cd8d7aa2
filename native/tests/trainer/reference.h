// The whole model and its optimizer, written plainly in float64 and sharing nothing with the product: one sequence at a
// time, full attention matrices, logical tensors by name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer/config.h"

namespace internevo::trainer::testing {

using Tensors = std::map<std::string, std::vector<double>>;

class Reference {
 public:
  /// With `bf16`, every stored activation, gradient of an activation and weight is rounded to bfloat16, as a plain
  /// implementation with that storage would have it; sums stay float64.
  Reference(const ModelConfig& model, std::int64_t sequence, bool bf16)
      : m_(model), s_(sequence), bf16_(bf16) {}

  /// Sum of the losses of one sequence's tokens, of those whose target is not −1; adds scale · gradient to `gradients`
  /// when it is given. documentStarts: of each token, where its document begins in the sequence; tokens see their own
  /// document only, and positions are counted from its beginning.
  double sequenceLoss(const Tensors& weights, const std::vector<int>& tokens, const std::vector<int>& targets,
                      const std::vector<int>& documentStarts, double scale, Tensors* gradients) const;

 private:
  struct Layer {
    std::vector<double> x, n1, q, k, v, p, o, h, n2, gate, up, act;
    std::vector<double> rawQ, rawK;  ///< before the norm of their heads
    const std::vector<int>* starts = nullptr;
  };
  using Vec = std::vector<double>;

  double r(double value) const;
  Vec rounded(Vec value) const;
  /// Of each row of x, as wide as the gain.
  Vec norm(const Vec& x, const Vec& gain) const;
  void normBackward(const Vec& x, const Vec& gain, const Vec& gY, Vec* gX, Vec* gGain) const;
  Vec linear(const Vec& x, const Vec& w, std::int64_t inputs, std::int64_t outputs) const;
  void linearBackward(const Vec& x, const Vec& w, const Vec& gY, std::int64_t inputs, std::int64_t outputs,
                      Vec* gX, Vec* gW) const;
  void addBias(Vec* y, const Vec& bias) const;
  void addRows(const Vec& gY, Vec* gBias) const;
  /// Radians a position of a pair; and what multiplies cosines and sines.
  double frequency(std::int64_t pair) const;
  double attentionFactor() const;
  /// First position that a token sees.
  std::int64_t firstSeen(std::int64_t token, const std::vector<int>& starts) const;
  void rotate(Vec* x, const std::vector<int>& starts, std::int64_t heads, double direction) const;
  void attention(Layer* l) const;
  void attentionBackward(const Layer& l, const Vec& gO, Vec* gQ, Vec* gK, Vec* gV) const;
  Layer forwardLayer(const Tensors& w, const std::string& prefix, const std::vector<int>& starts,
                     const Vec& x, Vec* next) const;
  Vec backwardLayer(const Tensors& w, const std::string& prefix, const Layer& l, const Vec& gNext,
                    Tensors* g) const;

  ModelConfig m_;
  std::int64_t s_;
  bool bf16_;
};

/// AdamW with the schedule and clipping of the configuration, in float64.
class ReferenceOptimizer {
 public:
  explicit ReferenceOptimizer(const OptimizerConfig& o) : o_(o) {}
  /// Returns the gradient's norm before clipping.
  double update(std::int64_t step, const Tensors& gradients, Tensors* weights);

 private:
  OptimizerConfig o_;
  Tensors first_, second_;
};

/// The sequences of a step.
struct Batch {
  std::vector<std::vector<int>> tokens, targets, documentStarts;
};
/// documentOf: of every token of the data, its document; empty: none are kept apart.
Batch batchOf(const Config& config, const std::vector<std::uint32_t>& data,
              const std::vector<int>& documentOf, std::int64_t step);

/// The same of the first sequences of the data, in its order.
Batch firstSequences(const Config& config, const std::vector<std::uint32_t>& data,
                     const std::vector<int>& documentOf, std::int64_t count);

/// Mean loss of a batch over the targets that are not −1; adds its gradient to `gradients` when it is given.
double batchLoss(const Reference& reference, const Tensors& weights, const Batch& batch, Tensors* gradients);

}  // namespace internevo::trainer::testing
