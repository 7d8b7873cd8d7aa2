#include "reference.h"

#include <algorithm>
#include <cmath>

#include "internevo/tensor.h"

#include "trainer/token_file.h"

namespace internevo::trainer::testing {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

double Reference::r(double value) const {
  return bf16_ ? static_cast<double>(floatFromBfloat16(bfloat16FromFloat(static_cast<float>(value)))) : value;
}

Reference::Vec Reference::rounded(Vec value) const {
  for (double& x : value) x = r(x);
  return value;
}

Reference::Vec Reference::norm(const Vec& x, const Vec& gain) const {
  const std::size_t width = gain.size();
  Vec y(x.size());
  for (std::size_t row = 0; row < x.size(); row += width) {
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) squares += x[row + i] * x[row + i];
    const double root = std::sqrt(squares / static_cast<double>(width) + m_.normEpsilon);
    for (std::size_t i = 0; i < width; ++i) y[row + i] = r(x[row + i] / root * r(gain[i]));
  }
  return y;
}

/// y_i = x_i g_i / R with R = sqrt(mean(x²) + e): dx_j = (gy_j g_j)/R − x_j/(h R³) Σ_i gy_i g_i x_i. Adds to *gX.
void Reference::normBackward(const Vec& x, const Vec& gain, const Vec& gY, Vec* gX, Vec* gGain) const {
  const std::size_t width = gain.size();
  for (std::size_t row = 0; row < x.size(); row += width) {
    double squares = 0, dot = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t k = row + i;
      squares += x[k] * x[k];
      dot += gY[k] * r(gain[i]) * x[k];
    }
    const double root = std::sqrt(squares / static_cast<double>(width) + m_.normEpsilon);
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t k = row + i;
      (*gX)[k] = r((*gX)[k] + gY[k] * r(gain[i]) / root -
                   x[k] * dot / (static_cast<double>(width) * root * root * root));
      (*gGain)[i] += gY[k] * x[k] / root;
    }
  }
}

void Reference::addBias(Vec* y, const Vec& bias) const {
  for (std::size_t k = 0; k < y->size(); ++k) (*y)[k] = r((*y)[k] + r(bias[k % bias.size()]));
}

void Reference::addRows(const Vec& gY, Vec* gBias) const {
  for (std::size_t k = 0; k < gY.size(); ++k) (*gBias)[k % gBias->size()] += gY[k];
}

Reference::Vec Reference::linear(const Vec& x, const Vec& w, std::int64_t inputs,
                                 std::int64_t outputs) const {
  Vec y(at(s_ * outputs));
  for (std::int64_t t = 0; t < s_; ++t) {
    for (std::int64_t o = 0; o < outputs; ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < inputs; ++i) sum += x[at(t * inputs + i)] * r(w[at(o * inputs + i)]);
      y[at(t * outputs + o)] = r(sum);
    }
  }
  return y;
}

/// Adds to *gX (not rounded: several products may meet there) and *gW.
void Reference::linearBackward(const Vec& x, const Vec& w, const Vec& gY, std::int64_t inputs,
                               std::int64_t outputs, Vec* gX, Vec* gW) const {
  for (std::int64_t t = 0; t < s_; ++t) {
    for (std::int64_t o = 0; o < outputs; ++o) {
      const double g = gY[at(t * outputs + o)];
      for (std::int64_t i = 0; i < inputs; ++i) {
        (*gX)[at(t * inputs + i)] += g * r(w[at(o * inputs + i)]);
        (*gW)[at(o * inputs + i)] += g * x[at(t * inputs + i)];
      }
    }
  }
}

double Reference::frequency(std::int64_t pair) const {
  const RopeScaling& scaling = m_.ropeScaling;
  const auto d = static_cast<double>(m_.headSize()), i = static_cast<double>(pair);
  const double own = std::pow(m_.ropeTheta, -2 * i / d), stretched = own / scaling.factor;
  const double turn = 2 * std::acos(-1.0);
  double keeps = 0;  // how much of the frequency stays as it is
  switch (scaling.kind) {
    case RopeScalingKind::none: return own;
    case RopeScalingKind::linear: return stretched;
    case RopeScalingKind::llama3: {
      const double low = scaling.lowFrequencyFactor, high = scaling.highFrequencyFactor;
      keeps = (scaling.originalPositions / (turn / own) - low) / (high - low);
      break;
    }
    case RopeScalingKind::yarn: {
      const auto at = [&](double turns) {
        return d / 2 * std::log(scaling.originalPositions / turn / turns) / std::log(m_.ropeTheta);
      };
      const double first = std::max(std::floor(at(scaling.betaFast)), 0.0);
      const double last = std::min(std::ceil(at(scaling.betaSlow)), d - 1);
      keeps = 1 - (i - first) / (last - first);
      break;
    }
  }
  keeps = std::min(std::max(keeps, 0.0), 1.0);
  return keeps * own + (1 - keeps) * stretched;
}

double Reference::attentionFactor() const {
  return m_.ropeScaling.kind == RopeScalingKind::yarn ? 1 + 0.1 * std::log(m_.ropeScaling.factor) : 1;
}

std::int64_t Reference::firstSeen(std::int64_t token, const std::vector<int>& starts) const {
  const std::int64_t start = starts[at(token)];
  return m_.slidingWindowTokens == 0 ? start : std::max(start, token - m_.slidingWindowTokens + 1);
}

void Reference::rotate(Vec* x, const std::vector<int>& starts, std::int64_t heads, double direction) const {
  const std::int64_t d = m_.headSize();
  const double factor = attentionFactor();
  for (std::int64_t t = 0; t < s_; ++t) {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t i = 0; i < d / 2; ++i) {
        const double angle = direction * static_cast<double>(t - starts[at(t)]) * frequency(i);
        const double c = factor * std::cos(angle), s = factor * std::sin(angle);
        double& a = (*x)[at((t * heads + head) * d + i)];
        double& b = (*x)[at((t * heads + head) * d + i + d / 2)];
        const double turned = a * c - b * s;
        b = r(a * s + b * c);
        a = r(turned);
      }
    }
  }
}

void Reference::attention(Layer* l) const {
  const std::int64_t d = m_.headSize(), heads = m_.heads, kv = m_.kvHeads;
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  l->p.assign(at(heads * s_ * s_), 0);
  l->o.assign(at(s_ * heads * d), 0);
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t g = head / (heads / kv);
    for (std::int64_t t = 0; t < s_; ++t) {
      double* const row = &l->p[at((head * s_ + t) * s_)];
      double total = 0;
      for (std::int64_t u = firstSeen(t, *l->starts); u <= t; ++u) {
        double score = 0;
        for (std::int64_t i = 0; i < d; ++i)
          score += l->q[at((t * heads + head) * d + i)] * l->k[at((u * kv + g) * d + i)];
        row[u] = std::exp(score * scale);
        total += row[u];
      }
      for (std::int64_t u = 0; u <= t; ++u) row[u] /= total;  // 0 where it sees nothing
      for (std::int64_t i = 0; i < d; ++i) {
        double sum = 0;
        for (std::int64_t u = 0; u <= t; ++u) sum += row[u] * l->v[at((u * kv + g) * d + i)];
        l->o[at((t * heads + head) * d + i)] = r(sum);
      }
    }
  }
}

void Reference::attentionBackward(const Layer& l, const Vec& gO, Vec* gQ, Vec* gK, Vec* gV) const {
  const std::int64_t d = m_.headSize(), heads = m_.heads, kv = m_.kvHeads;
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t g = head / (heads / kv);
    for (std::int64_t t = 0; t < s_; ++t) {
      const double* const row = &l.p[at((head * s_ + t) * s_)];
      Vec gP(at(t + 1), 0);
      double mean = 0;
      for (std::int64_t u = 0; u <= t; ++u) {
        for (std::int64_t i = 0; i < d; ++i) {
          const double go = gO[at((t * heads + head) * d + i)];
          gP[at(u)] += go * l.v[at((u * kv + g) * d + i)];
          (*gV)[at((u * kv + g) * d + i)] += row[u] * go;
        }
        mean += row[u] * gP[at(u)];
      }
      for (std::int64_t u = 0; u <= t; ++u) {
        const double gScore = row[u] * (gP[at(u)] - mean) * scale;
        for (std::int64_t i = 0; i < d; ++i) {
          (*gQ)[at((t * heads + head) * d + i)] += gScore * l.k[at((u * kv + g) * d + i)];
          (*gK)[at((u * kv + g) * d + i)] += gScore * l.q[at((t * heads + head) * d + i)];
        }
      }
    }
  }
}

Reference::Layer Reference::forwardLayer(const Tensors& w, const std::string& prefix,
                                         const std::vector<int>& starts, const Vec& x, Vec* next) const {
  const std::int64_t h = m_.hiddenSize, query = m_.queryWidth(), kv = m_.kvWidth(), f = m_.ffnHiddenSize;
  Layer l;
  l.x = x, l.starts = &starts;
  l.n1 = norm(x, w.at(prefix + ".attentionNorm"));
  l.q = linear(l.n1, w.at(prefix + ".wq"), h, query);
  l.k = linear(l.n1, w.at(prefix + ".wk"), h, kv);
  l.v = linear(l.n1, w.at(prefix + ".wv"), h, kv);
  if (m_.queryKeyValueBias) {
    addBias(&l.q, w.at(prefix + ".queryBias"));
    addBias(&l.k, w.at(prefix + ".keyBias"));
    addBias(&l.v, w.at(prefix + ".valueBias"));
  }
  if (m_.queryKeyNorm) {
    l.rawQ = l.q, l.rawK = l.k;
    l.q = norm(l.rawQ, w.at(prefix + ".queryNorm"));
    l.k = norm(l.rawK, w.at(prefix + ".keyNorm"));
  }
  rotate(&l.q, starts, m_.heads, 1);
  rotate(&l.k, starts, m_.kvHeads, 1);
  attention(&l);
  l.h = linear(l.o, w.at(prefix + ".wo"), query, h);
  for (std::size_t i = 0; i < l.h.size(); ++i) l.h[i] = r(l.h[i] + x[i]);
  l.n2 = norm(l.h, w.at(prefix + ".mlpNorm"));
  l.gate = linear(l.n2, w.at(prefix + ".gate"), h, f);
  l.up = linear(l.n2, w.at(prefix + ".up"), h, f);
  l.act.resize(l.gate.size());
  for (std::size_t i = 0; i < l.act.size(); ++i)
    l.act[i] = r(l.gate[i] / (1 + std::exp(-l.gate[i])) * l.up[i]);
  *next = linear(l.act, w.at(prefix + ".down"), f, h);
  for (std::size_t i = 0; i < next->size(); ++i) (*next)[i] = r((*next)[i] + l.h[i]);
  return l;
}

Reference::Vec Reference::backwardLayer(const Tensors& w, const std::string& prefix, const Layer& l,
                                        const Vec& gNext, Tensors* g) const {
  const std::int64_t h = m_.hiddenSize, query = m_.queryWidth(), kv = m_.kvWidth(), f = m_.ffnHiddenSize;
  const auto gradient = [&](const char* name) { return &(*g)[prefix + name]; };
  Vec gAct(l.act.size(), 0);
  linearBackward(l.act, w.at(prefix + ".down"), gNext, f, h, &gAct, gradient(".down"));
  gAct = rounded(gAct);
  Vec gGate(gAct.size()), gUp(gAct.size());
  for (std::size_t i = 0; i < gAct.size(); ++i) {
    const double sigmoid = 1 / (1 + std::exp(-l.gate[i]));
    gGate[i] = r(gAct[i] * l.up[i] * sigmoid * (1 + l.gate[i] * (1 - sigmoid)));
    gUp[i] = r(gAct[i] * l.gate[i] * sigmoid);
  }
  Vec gN2(l.n2.size(), 0);
  linearBackward(l.n2, w.at(prefix + ".gate"), gGate, h, f, &gN2, gradient(".gate"));
  linearBackward(l.n2, w.at(prefix + ".up"), gUp, h, f, &gN2, gradient(".up"));
  Vec gH = gNext;
  normBackward(l.h, w.at(prefix + ".mlpNorm"), rounded(gN2), &gH, gradient(".mlpNorm"));
  Vec gO(l.o.size(), 0), gQ(l.q.size(), 0), gK(l.k.size(), 0), gV(l.v.size(), 0), gN1(l.n1.size(), 0);
  linearBackward(l.o, w.at(prefix + ".wo"), gH, query, h, &gO, gradient(".wo"));
  attentionBackward(l, rounded(gO), &gQ, &gK, &gV);
  gQ = rounded(gQ), gK = rounded(gK), gV = rounded(gV);
  rotate(&gQ, *l.starts, m_.heads, -1);
  rotate(&gK, *l.starts, m_.kvHeads, -1);
  if (m_.queryKeyNorm) {
    Vec gRawQ(gQ.size(), 0), gRawK(gK.size(), 0);
    normBackward(l.rawQ, w.at(prefix + ".queryNorm"), gQ, &gRawQ, gradient(".queryNorm"));
    normBackward(l.rawK, w.at(prefix + ".keyNorm"), gK, &gRawK, gradient(".keyNorm"));
    gQ = gRawQ, gK = gRawK;
  }
  if (m_.queryKeyValueBias) {
    addRows(gQ, gradient(".queryBias"));
    addRows(gK, gradient(".keyBias"));
    addRows(gV, gradient(".valueBias"));
  }
  linearBackward(l.n1, w.at(prefix + ".wq"), gQ, h, query, &gN1, gradient(".wq"));
  linearBackward(l.n1, w.at(prefix + ".wk"), gK, h, kv, &gN1, gradient(".wk"));
  linearBackward(l.n1, w.at(prefix + ".wv"), gV, h, kv, &gN1, gradient(".wv"));
  normBackward(l.x, w.at(prefix + ".attentionNorm"), rounded(gN1), &gH, gradient(".attentionNorm"));
  return gH;
}

double Reference::sequenceLoss(const Tensors& w, const std::vector<int>& tokens,
                               const std::vector<int>& targets, const std::vector<int>& documentStarts,
                               double scale, Tensors* gradients) const {
  const std::int64_t h = m_.hiddenSize, vocabulary = m_.vocabularySize;
  if (gradients != nullptr) {
    for (const auto& [name, values] : w) (*gradients)[name].resize(values.size(), 0);
  }
  Vec x(at(s_ * h));
  for (std::int64_t t = 0; t < s_; ++t) {
    for (std::int64_t i = 0; i < h; ++i) x[at(t * h + i)] = r(w.at("embedding")[at(tokens[at(t)] * h + i)]);
  }
  std::vector<Layer> layers;
  for (std::int64_t layer = 0; layer < m_.layers; ++layer) {
    Vec next;
    layers.push_back(forwardLayer(w, "layers." + std::to_string(layer), documentStarts, x, &next));
    x = next;
  }
  const std::string headName = m_.tiedEmbeddings ? "embedding" : "head";
  const Vec n = norm(x, w.at("finalNorm"));
  double loss = 0;
  Vec gN(n.size(), 0);
  for (std::int64_t t = 0; t < s_; ++t) {
    if (targets[at(t)] < 0) continue;
    Vec logits(at(vocabulary), 0);
    double total = 0;
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      for (std::int64_t i = 0; i < h; ++i)
        logits[at(v)] += n[at(t * h + i)] * r(w.at(headName)[at(v * h + i)]);
      total += std::exp(logits[at(v)]);
    }
    loss += std::log(total) - logits[at(targets[at(t)])];
    if (gradients == nullptr) continue;
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      const double g = scale * (std::exp(logits[at(v)]) / total - (v == targets[at(t)] ? 1 : 0));
      for (std::int64_t i = 0; i < h; ++i) {
        gN[at(t * h + i)] += g * r(w.at(headName)[at(v * h + i)]);
        (*gradients)[headName][at(v * h + i)] += g * n[at(t * h + i)];
      }
    }
  }
  if (gradients == nullptr) return loss;
  Vec gX(x.size(), 0);
  normBackward(x, w.at("finalNorm"), rounded(gN), &gX, &(*gradients)["finalNorm"]);
  for (std::int64_t layer = m_.layers - 1; layer >= 0; --layer) {
    gX = backwardLayer(w, "layers." + std::to_string(layer), layers[at(layer)], gX, gradients);
  }
  for (std::int64_t t = 0; t < s_; ++t) {
    for (std::int64_t i = 0; i < h; ++i)
      (*gradients)["embedding"][at(tokens[at(t)] * h + i)] += gX[at(t * h + i)];
  }
  return loss;
}

double ReferenceOptimizer::update(std::int64_t step, const Tensors& gradients, Tensors* weights) {
  double squares = 0;
  for (const auto& [name, g] : gradients) {
    for (const double x : g) squares += x * x;
  }
  const double norm = std::sqrt(squares);
  const double scale = o_.clipGlobalNorm > 0 && norm > o_.clipGlobalNorm ? o_.clipGlobalNorm / norm : 1;
  const auto s = static_cast<double>(step);
  double rate = o_.minLearningRate;
  if (step <= o_.warmupSteps) {
    rate = o_.peakLearningRate * s / static_cast<double>(o_.warmupSteps);
  } else if (step < o_.decaySteps) {
    const double progress =
        (s - static_cast<double>(o_.warmupSteps)) / static_cast<double>(o_.decaySteps - o_.warmupSteps);
    rate += (o_.peakLearningRate - o_.minLearningRate) * (1 + std::cos(std::acos(-1.0) * progress)) / 2;
  }
  for (auto& [name, w] : *weights) {
    const bool vector = name.find("Norm") != std::string::npos || name.find("Bias") != std::string::npos;
    std::vector<double>&m = first_[name], &v = second_[name];
    m.resize(w.size(), 0), v.resize(w.size(), 0);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = gradients.at(name)[i] * scale;
      m[i] = o_.beta1 * m[i] + (1 - o_.beta1) * g;
      v[i] = o_.beta2 * v[i] + (1 - o_.beta2) * g * g;
      const double direction =
          m[i] / (1 - std::pow(o_.beta1, s)) / (std::sqrt(v[i] / (1 - std::pow(o_.beta2, s))) + o_.epsilon);
      w[i] -= rate * (direction + (vector ? 0 : o_.weightDecay) * w[i]);
    }
  }
  return norm;
}

// ---- batches --------------------------------------------------------------------------------------------------------

namespace {

void addSequence(const Config& c, const std::vector<std::uint32_t>& data, const std::vector<int>& documentOf,
                 std::int64_t sequence, Batch* batch) {
  const std::int64_t first = sequence * c.sequenceLengthTokens;
  std::vector<int> tokens, targets, starts;
  const auto apart = [&](std::int64_t token) {  // from the one before it
    return !documentOf.empty() && documentOf[at(token)] != documentOf[at(token - 1)];
  };
  for (std::int64_t t = first; t < first + c.sequenceLengthTokens; ++t) {
    tokens.push_back(static_cast<int>(data[static_cast<std::size_t>(t)]));
    targets.push_back(apart(t + 1) ? -1 : static_cast<int>(data[static_cast<std::size_t>(t + 1)]));
    starts.push_back(t == first ? 0 : apart(t) ? static_cast<int>(t - first) : starts.back());
  }
  batch->tokens.push_back(tokens), batch->targets.push_back(targets);
  batch->documentStarts.push_back(starts);
}

}  // namespace

Batch batchOf(const Config& c, const std::vector<std::uint32_t>& data, const std::vector<int>& documentOf,
              std::int64_t step) {
  const std::int64_t sequences = (static_cast<std::int64_t>(data.size()) - 1) / c.sequenceLengthTokens;
  const std::int64_t size = c.plan.globalBatchSequences();
  Batch batch;
  for (std::int64_t i = 0; i < size; ++i)
    addSequence(c, data, documentOf, sequenceOfDraw(c.seed, sequences, (step - 1) * size + i), &batch);
  return batch;
}

Batch firstSequences(const Config& c, const std::vector<std::uint32_t>& data,
                     const std::vector<int>& documentOf, std::int64_t count) {
  Batch batch;
  for (std::int64_t i = 0; i < count; ++i) addSequence(c, data, documentOf, i, &batch);
  return batch;
}

double batchLoss(const Reference& reference, const Tensors& weights, const Batch& batch, Tensors* gradients) {
  double loss = 0, count = 0;
  for (const auto& targets : batch.targets) {
    for (const int target : targets) count += target < 0 ? 0 : 1;
  }
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    loss += reference.sequenceLoss(weights, batch.tokens[i], batch.targets[i], batch.documentStarts[i],
                                   1 / count, gradients);
  }
  return loss / count;
}

}  // namespace internevo::trainer::testing
