// Rotary positions: the frequencies at which pairs of a head turn, out of the fields of a model, and their cosines and sines.
// Scaled kinds have the names and the meaning that Hugging Face's configurations give them (rope_scaling).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "internevo/status.h"

namespace internevo {

enum class RopeScalingKind { none, linear, llama3, yarn };

/// How a model was stretched to sequences longer than those it was first trained on.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1;  ///< how many times longer
  double originalPositions =
      0;  ///< llama3, yarn: original_max_position_embeddings, or else max_position_embeddings
  double lowFrequencyFactor = 1, highFrequencyFactor = 4;  ///< llama3
  double betaFast = 32, betaSlow = 1;                      ///< yarn: turns within the original positions
  bool truncate = true;                                    ///< yarn: its borders are whole pairs
  double attentionFactor = 0;                              ///< yarn; 0: follows from factor and what is below
  double mscale = 0, mscaleAllDimensions = 0;              ///< yarn: mscale, mscale_all_dim; 0: not given
};

/// The fields of a model that its rotary positions follow from.
struct RopeFields {
  std::int64_t headSize = 0;
  double theta = 10000;
  std::int64_t rotarySize = 0;  ///< elements at the start of a head that turn; 0 = headSize
  RopeScaling scaling{};
};

struct RopeFrequencies {
  std::vector<double> inverse;  ///< radians a position, of each pair
  double attentionFactor = 1;   ///< multiplies cosines and sines, so that it comes squared into the scores

  std::int64_t pairs() const { return static_cast<std::int64_t>(inverse.size()); }

  /// Cosines and sines of a position, one of each for every pair.
  void row(std::int64_t position, float* cosines, float* sines) const {
    for (std::size_t i = 0; i < inverse.size(); ++i) {
      const double angle = static_cast<double>(position) * inverse[i];
      cosines[i] = static_cast<float>(std::cos(angle) * attentionFactor);
      sines[i] = static_cast<float>(std::sin(angle) * attentionFactor);
    }
  }
};

namespace rope {

inline Status wrong(const char* field, double value, const std::string& remedy) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return {StatusCode::badConfig, "rotary positions: " + std::string(field) + " is " + text + "; " + remedy};
}

inline Status checkScaling(const RopeScaling& s, double theta) {
  if (s.kind == RopeScalingKind::none) return Status::success();
  if (!(s.factor >= 1) || !std::isfinite(s.factor))
    return wrong("factor", s.factor, "must be at least 1, so that sequences get longer");
  if (s.kind == RopeScalingKind::linear) return Status::success();
  if (!(s.originalPositions > 0))
    return wrong("originalPositions", s.originalPositions,
                 "must be the positions before scaling (original_max_position_embeddings)");
  if (s.kind == RopeScalingKind::llama3) {
    if (!(s.lowFrequencyFactor > 0))
      return wrong("lowFrequencyFactor", s.lowFrequencyFactor, "must be positive");
    if (!(s.highFrequencyFactor > s.lowFrequencyFactor))
      return wrong("highFrequencyFactor", s.highFrequencyFactor, "must be larger than lowFrequencyFactor");
    return Status::success();
  }
  if (!(theta > 1)) return wrong("theta", theta, "must be larger than 1 for yarn");
  if (!(s.betaSlow > 0)) return wrong("betaSlow", s.betaSlow, "must be positive");
  if (!(s.betaFast >= s.betaSlow)) return wrong("betaFast", s.betaFast, "must be at least betaSlow");
  if (!(s.attentionFactor >= 0))
    return wrong("attentionFactor", s.attentionFactor, "must be positive, or 0 to follow from factor");
  return Status::success();
}

/// Llama 3.1: slow pairs are stretched by the factor, fast ones stay, and those between go from one to the other as the turns
/// that they make in the original positions do.
inline double llama3(const RopeScaling& s, double frequency) {
  const double turns = s.originalPositions * frequency / (2 * std::numbers::pi);
  if (turns < s.lowFrequencyFactor) return frequency / s.factor;
  if (turns > s.highFrequencyFactor) return frequency;
  const double own = (turns - s.lowFrequencyFactor) / (s.highFrequencyFactor - s.lowFrequencyFactor);
  return (1 - own) * frequency / s.factor + own * frequency;
}

/// YaRN (Peng et al. 2023): pairs with more turns than betaFast stay, those with fewer than betaSlow are stretched, with a ramp
/// over the pairs between.
class Yarn {
 public:
  Yarn(const RopeScaling& s, double theta, std::int64_t rotarySize) : factor_(s.factor) {
    const auto pairOf = [&](double turns) {
      return static_cast<double>(rotarySize) *
             std::log(s.originalPositions / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
    };
    const double first = pairOf(s.betaFast), last = pairOf(s.betaSlow);
    begin_ = std::max(s.truncate ? std::floor(first) : first, 0.);
    end_ = std::min(s.truncate ? std::ceil(last) : last, static_cast<double>(rotarySize - 1));
    if (begin_ == end_) end_ += 0.001;
  }
  double scaled(double frequency, std::int64_t pair) const {
    const double stretched = std::clamp((static_cast<double>(pair) - begin_) / (end_ - begin_), 0., 1.);
    return frequency / factor_ * stretched + frequency * (1 - stretched);
  }

 private:
  double factor_, begin_ = 0, end_ = 0;
};

inline double yarnAttentionFactor(const RopeScaling& s) {
  if (s.attentionFactor > 0) return s.attentionFactor;
  const auto of = [&](double scale) { return s.factor <= 1 ? 1. : 0.1 * scale * std::log(s.factor) + 1; };
  return s.mscale != 0 && s.mscaleAllDimensions != 0 ? of(s.mscale) / of(s.mscaleAllDimensions) : of(1);
}

}  // namespace rope

/// Errors: badConfig naming the field, its value and what it must be.
inline Status ropeFrequencies(const RopeFields& fields, RopeFrequencies* result) {
  const std::int64_t size = fields.rotarySize == 0 ? fields.headSize : fields.rotarySize;
  const char* const named = fields.rotarySize == 0 ? "headSize" : "rotarySize";
  if (size <= 0) return rope::wrong(named, static_cast<double>(size), "must be positive");
  if (size % 2 != 0)
    return rope::wrong(named, static_cast<double>(size), "must be even, as rotary positions turn pairs");
  if (size > fields.headSize)
    return rope::wrong(named, static_cast<double>(size),
                       "must be at most headSize, " + std::to_string(fields.headSize));
  if (!(fields.theta > 0)) return rope::wrong("theta", fields.theta, "must be positive");
  const RopeScaling& s = fields.scaling;
  INTERNEVO_RETURN_IF_ERROR(rope::checkScaling(s, fields.theta));
  *result = {std::vector<double>(static_cast<std::size_t>(size / 2)), 1};
  for (std::int64_t i = 0; i < size / 2; ++i) {
    const double frequency =
        std::pow(fields.theta, -2.0 * static_cast<double>(i) / static_cast<double>(size));
    double& scaled = result->inverse[static_cast<std::size_t>(i)];
    switch (s.kind) {
      case RopeScalingKind::none: scaled = frequency; break;
      case RopeScalingKind::linear: scaled = frequency / s.factor; break;
      case RopeScalingKind::llama3: scaled = rope::llama3(s, frequency); break;
      case RopeScalingKind::yarn: scaled = rope::Yarn(s, fields.theta, size).scaled(frequency, i); break;
    }
  }
  if (s.kind == RopeScalingKind::yarn) result->attentionFactor = rope::yarnAttentionFactor(s);
  return Status::success();
}

}  // namespace internevo
