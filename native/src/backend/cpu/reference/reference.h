// Every operator written as its formula, for any arithmetic type: the oracle of the kernels' tests. Dense rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "internevo/rope.h"

namespace internevo::reference {

using Index = std::int64_t;

template <typename T>
void linearForward(Index rows, Index inputs, Index outputs, const T* x, const T* w, T* y) {
  for (Index r = 0; r < rows; ++r) {
    for (Index o = 0; o < outputs; ++o) {
      T sum = 0;
      for (Index i = 0; i < inputs; ++i) sum += x[r * inputs + i] * w[o * inputs + i];
      y[r * outputs + o] = sum;
    }
  }
}

template <typename T>
void linearGradInput(Index rows, Index inputs, Index outputs, const T* gY, const T* w, T* gX) {
  for (Index r = 0; r < rows; ++r) {
    for (Index i = 0; i < inputs; ++i) {
      T sum = 0;
      for (Index o = 0; o < outputs; ++o) sum += gY[r * outputs + o] * w[o * inputs + i];
      gX[r * inputs + i] = sum;
    }
  }
}

template <typename T>
void linearGradWeight(Index rows, Index inputs, Index outputs, const T* x, const T* gY, T* gW) {
  for (Index o = 0; o < outputs; ++o) {
    for (Index i = 0; i < inputs; ++i) {
      T sum = 0;
      for (Index r = 0; r < rows; ++r) sum += gY[r * outputs + o] * x[r * inputs + i];
      gW[o * inputs + i] += sum;
    }
  }
}

/// y[rows, outputs], rows `stride` apart.
template <typename T>
void biasAdd(Index rows, Index outputs, Index stride, const T* bias, T* y) {
  for (Index r = 0; r < rows; ++r) {
    for (Index o = 0; o < outputs; ++o) y[r * stride + o] += bias[o];
  }
}

template <typename T>
void biasGradient(Index rows, Index outputs, Index stride, const T* gY, T* gBias) {
  for (Index r = 0; r < rows; ++r) {
    for (Index o = 0; o < outputs; ++o) gBias[o] += gY[r * stride + o];
  }
}

template <typename T>
T inverseRms(Index width, const T* h, T epsilon) {
  T squares = 0;
  for (Index i = 0; i < width; ++i) squares += h[i] * h[i];
  return 1 / std::sqrt(squares / static_cast<T>(width) + epsilon);
}

template <typename T>
void rmsNormForward(Index rows, Index width, const T* h, const T* gain, T epsilon, T* y) {
  for (Index r = 0; r < rows; ++r) {
    const T scale = inverseRms(width, h + r * width, epsilon);
    for (Index i = 0; i < width; ++i) y[r * width + i] = h[r * width + i] * scale * gain[i];
  }
}

template <typename T>
void rmsNormBackward(Index rows, Index width, const T* h, const T* gain, T epsilon, const T* gY, T* gH,
                     T* gGain) {
  for (Index r = 0; r < rows; ++r) {
    const T* const row = h + r * width;
    const T scale = inverseRms(width, row, epsilon);
    T dot = 0;
    for (Index i = 0; i < width; ++i) dot += gY[r * width + i] * gain[i] * row[i];
    dot *= scale * scale * scale / static_cast<T>(width);
    for (Index i = 0; i < width; ++i) {
      gH[r * width + i] = gY[r * width + i] * gain[i] * scale - row[i] * dot;
      gGain[i] += gY[r * width + i] * row[i] * scale;
    }
  }
}

/// direction 1 rotates forward, −1 takes a gradient back. In place on x[rows, heads, headSize], of whose heads the first
/// 2 · pairs elements turn. A row's position is positions[row], or offset + row mod sequence where there are none.
template <typename T>
void rope(Index rows, Index heads, Index headSize, Index sequence, Index offset,
          const RopeFrequencies& frequencies, int direction, T* x, const std::int32_t* positions = nullptr) {
  const Index pairs = frequencies.pairs();
  for (Index r = 0; r < rows; ++r) {
    for (Index h = 0; h < heads; ++h) {
      for (Index i = 0; i < pairs; ++i) {
        const Index position = positions != nullptr ? positions[r] : offset + r % sequence;
        const double angle = static_cast<double>(position) * frequencies.inverse[static_cast<std::size_t>(i)];
        const T c = static_cast<T>(std::cos(angle) * frequencies.attentionFactor),
                s = static_cast<T>(direction * std::sin(angle) * frequencies.attentionFactor);
        T* const a = x + (r * heads + h) * headSize + i;
        const T first = a[0], second = a[pairs];
        a[0] = first * c - second * s;
        a[pairs] = second * c + first * s;
      }
    }
  }
}

struct Attention {
  Index batch, sequence, heads, kvHeads, headSize;
  std::vector<std::int32_t> firstKeys{};  ///< [batch·sequence]; empty: 0
  Index window = 0;                       ///< keys that a query sees at most; 0: all

  Index firstKey(Index b, Index t) const {
    const Index document = firstKeys.empty() ? 0 : firstKeys[static_cast<std::size_t>(b * sequence + t)];
    return window == 0 ? document : std::max(document, t - window + 1);
  }
  Index queryAt(Index b, Index t, Index h) const { return ((b * sequence + t) * heads + h) * headSize; }
  Index keyAt(Index b, Index t, Index h) const {
    return ((b * sequence + t) * kvHeads + h / (heads / kvHeads)) * headSize;
  }
};

/// Probabilities of one query: p[firstKey, t].
template <typename T>
void attentionRow(const Attention& s, Index b, Index t, Index h, const T* q, const T* k, std::vector<T>& p) {
  const T scale = 1 / std::sqrt(static_cast<T>(s.headSize));
  const Index first = s.firstKey(b, t);
  T largest = 0, total = 0;
  for (Index u = first; u <= t; ++u) {
    T dot = 0;
    for (Index i = 0; i < s.headSize; ++i) dot += q[s.queryAt(b, t, h) + i] * k[s.keyAt(b, u, h) + i];
    p[u] = dot * scale;
    if (u == first || p[u] > largest) largest = p[u];
  }
  for (Index u = first; u <= t; ++u) total += p[u] = std::exp(p[u] - largest);
  for (Index u = first; u <= t; ++u) p[u] /= total;
}

template <typename T>
void attentionForward(const Attention& s, const T* q, const T* k, const T* v, T* o) {
  std::vector<T> p(static_cast<std::size_t>(s.sequence));
  for (Index b = 0; b < s.batch; ++b) {
    for (Index h = 0; h < s.heads; ++h) {
      for (Index t = 0; t < s.sequence; ++t) {
        attentionRow(s, b, t, h, q, k, p);
        for (Index i = 0; i < s.headSize; ++i) {
          T sum = 0;
          for (Index u = s.firstKey(b, t); u <= t; ++u) sum += p[u] * v[s.keyAt(b, u, h) + i];
          o[s.queryAt(b, t, h) + i] = sum;
        }
      }
    }
  }
}

/// gQ, gK, gV start at zero.
template <typename T>
void attentionBackward(const Attention& s, const T* q, const T* k, const T* v, const T* o, const T* gO, T* gQ,
                       T* gK, T* gV) {
  const T scale = 1 / std::sqrt(static_cast<T>(s.headSize));
  std::vector<T> p(static_cast<std::size_t>(s.sequence));
  for (Index b = 0; b < s.batch; ++b) {
    for (Index h = 0; h < s.heads; ++h) {
      for (Index t = 0; t < s.sequence; ++t) {
        const Index at = s.queryAt(b, t, h);
        attentionRow(s, b, t, h, q, k, p);
        T delta = 0;
        for (Index i = 0; i < s.headSize; ++i) delta += o[at + i] * gO[at + i];
        for (Index u = s.firstKey(b, t); u <= t; ++u) {
          const Index key = s.keyAt(b, u, h);
          T gP = 0;
          for (Index i = 0; i < s.headSize; ++i) gP += gO[at + i] * v[key + i];
          const T gScore = p[u] * (gP - delta) * scale;
          for (Index i = 0; i < s.headSize; ++i) {
            gQ[at + i] += gScore * k[key + i];
            gK[key + i] += gScore * q[at + i];
            gV[key + i] += p[u] * gO[at + i];
          }
        }
      }
    }
  }
}

template <typename T>
void swigluForward(Index elements, const T* gate, const T* up, T* y) {
  for (Index i = 0; i < elements; ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
}

template <typename T>
void swigluBackward(Index elements, const T* gate, const T* up, const T* gY, T* gGate, T* gUp) {
  for (Index i = 0; i < elements; ++i) {
    const T sigmoid = 1 / (1 + std::exp(-gate[i]));
    gGate[i] = gY[i] * up[i] * sigmoid * (1 + gate[i] * (1 - sigmoid));
    gUp[i] = gY[i] * gate[i] * sigmoid;
  }
}

template <typename T>
void embeddingForward(Index rows, Index width, const std::int32_t* tokens, const T* table, T* y) {
  for (Index r = 0; r < rows; ++r) {
    for (Index i = 0; i < width; ++i) y[r * width + i] = table[tokens[r] * width + i];
  }
}

template <typename T>
void embeddingBackward(Index rows, Index width, const std::int32_t* tokens, const T* gY, T* gTable) {
  for (Index r = 0; r < rows; ++r) {
    for (Index i = 0; i < width; ++i) gTable[tokens[r] * width + i] += gY[r * width + i];
  }
}

/// Probabilities of one row's next token; returns its loss (0 where the target is −1).
template <typename T>
T lossOfRow(Index width, Index vocabulary, const T* x, const T* w, std::int32_t target, std::vector<T>& p) {
  T largest = 0, total = 0;
  for (Index c = 0; c < vocabulary; ++c) {
    T dot = 0;
    for (Index i = 0; i < width; ++i) dot += x[i] * w[c * width + i];
    p[c] = dot;
    if (c == 0 || dot > largest) largest = dot;
  }
  const T targetLogit = target < 0 ? 0 : p[target];
  for (Index c = 0; c < vocabulary; ++c) total += p[c] = std::exp(p[c] - largest);
  for (Index c = 0; c < vocabulary; ++c) p[c] /= total;
  return target < 0 ? 0 : std::log(total) + largest - targetLogit;
}

template <typename T>
T headLoss(Index rows, Index width, Index vocabulary, const T* x, const T* w, const std::int32_t* targets) {
  std::vector<T> p(static_cast<std::size_t>(vocabulary));
  T sum = 0;
  for (Index r = 0; r < rows; ++r) sum += lossOfRow(width, vocabulary, x + r * width, w, targets[r], p);
  return sum;
}

/// Gradients of gradientScale · headLoss. gX and gW start at zero.
template <typename T>
void headLossBackward(Index rows, Index width, Index vocabulary, const T* x, const T* w,
                      const std::int32_t* targets, T gradientScale, T* gX, T* gW) {
  std::vector<T> p(static_cast<std::size_t>(vocabulary));
  for (Index r = 0; r < rows; ++r) {
    if (targets[r] < 0) continue;
    lossOfRow(width, vocabulary, x + r * width, w, targets[r], p);
    p[targets[r]] -= 1;
    for (Index c = 0; c < vocabulary; ++c) {
      const T g = p[c] * gradientScale;
      for (Index i = 0; i < width; ++i) {
        gX[r * width + i] += g * w[c * width + i];
        gW[c * width + i] += g * x[r * width + i];
      }
    }
  }
}

template <typename T>
void adamw(Index elements, T learningRate, T beta1, T beta2, T epsilon, T weightDecay, Index step,
           T gradientScale, T* w, const T* gradient, T* m, T* v) {
  const T correction1 = 1 - std::pow(beta1, static_cast<T>(step)),
          correction2 = 1 - std::pow(beta2, static_cast<T>(step));
  for (Index i = 0; i < elements; ++i) {
    const T g = gradient[i] * gradientScale;
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    w[i] -=
        learningRate * (m[i] / correction1 / (std::sqrt(v[i] / correction2) + epsilon) + weightDecay * w[i]);
  }
}

}  // namespace internevo::reference
