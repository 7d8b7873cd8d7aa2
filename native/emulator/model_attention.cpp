#include "emulator/model_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "emulator/model_memory.h"

namespace internevo::cuda {

namespace {

/// A tensor of bfloat16 as the library is told of it.
struct Tensor {
  const TensorLayout& layout;
  std::uint16_t* data;

  Tensor(const TensorLayout& l, ConstView view)
      : layout(l), data(static_cast<std::uint16_t*>(const_cast<void*>(view.data))) {}
  std::uint16_t& at(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t i) const {
    return data[b * layout.stride[0] + h * layout.stride[1] + row * layout.stride[2] + i * layout.stride[3]];
  }
  double get(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t i) const {
    return floatFromBfloat16(at(b, h, row, i));
  }
  void set(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t i, double value) const {
    at(b, h, row, i) = bfloat16FromFloat(static_cast<float>(value));
  }
};

struct Plain {
  const AttentionLayouts layouts;
  const double scale;
  const std::int64_t window;
  Tensor q, k, v, o, gO, gQ, gK, gV;
  float* const logSumExp;

  Plain(const AttentionProblem& p, const LibraryAttention& x)
      : layouts(layoutsOf(p)),
        scale(scaleOf(p)),
        window(p.window),
        q(layouts.q, x.q),
        k(layouts.k, x.k),
        v(layouts.v, x.v),
        o(layouts.o, x.o),
        gO(layouts.o, x.gO),
        gQ(layouts.q, x.gQ),
        gK(layouts.k, x.gK),
        gV(layouts.v, x.gV),
        logSumExp(x.logSumExp.as<float>()) {}

  std::int64_t extent(int i) const { return layouts.q.extent[static_cast<std::size_t>(i)]; }
  std::int64_t firstKey(std::int64_t row) const {
    return window == 0 ? 0 : std::max<std::int64_t>(row + 1 - window, 0);
  }
  std::int64_t headOfKeys(std::int64_t h) const { return h / (extent(1) / layouts.k.extent[1]); }
  float& statistic(std::int64_t b, std::int64_t h, std::int64_t row) const {
    const auto& s = layouts.logSumExp.stride;
    return logSumExp[b * s[0] + h * s[1] + row * s[2]];
  }
  double score(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t key) const {
    double sum = 0;
    for (std::int64_t i = 0; i < extent(3); ++i) sum += q.get(b, h, row, i) * k.get(b, headOfKeys(h), key, i);
    return scale * sum;
  }

  void forward(std::int64_t b, std::int64_t h, std::int64_t row) const {
    std::vector<double> p;
    const std::int64_t first = firstKey(row);
    for (std::int64_t key = first; key <= row; ++key) p.push_back(score(b, h, row, key));
    const double largest = *std::max_element(p.begin(), p.end());
    double total = 0;
    for (double& each : p) total += each = std::exp(each - largest);
    for (std::int64_t i = 0; i < extent(3); ++i) {
      double sum = 0;
      for (std::int64_t key = first; key <= row; ++key)
        sum += p[static_cast<std::size_t>(key - first)] * v.get(b, headOfKeys(h), key, i);
      o.set(b, h, row, i, sum / total);
    }
    statistic(b, h, row) = static_cast<float>(largest + std::log(total));
  }

  /// Of the heads that share a head of keys.
  void backward(std::int64_t b, std::int64_t keys) const {
    const std::int64_t rows = extent(2), size = extent(3), group = extent(1) / layouts.k.extent[1];
    std::vector<double> sumK(static_cast<std::size_t>(rows * size)), sumV(sumK.size());
    for (std::int64_t h = keys * group; h < (keys + 1) * group; ++h) {
      for (std::int64_t row = 0; row < rows; ++row) {
        std::vector<double> sumQ(static_cast<std::size_t>(size));
        double delta = 0;
        for (std::int64_t i = 0; i < size; ++i) delta += o.get(b, h, row, i) * gO.get(b, h, row, i);
        for (std::int64_t key = firstKey(row); key <= row; ++key) {
          const double p = std::exp(score(b, h, row, key) - static_cast<double>(statistic(b, h, row)));
          double gP = 0;
          for (std::int64_t i = 0; i < size; ++i) gP += gO.get(b, h, row, i) * v.get(b, keys, key, i);
          const double gS = p * (gP - delta) * scale;
          for (std::int64_t i = 0; i < size; ++i) {
            const auto at = static_cast<std::size_t>(key * size + i);
            sumQ[static_cast<std::size_t>(i)] += gS * k.get(b, keys, key, i);
            sumK[at] += gS * q.get(b, h, row, i), sumV[at] += p * gO.get(b, h, row, i);
          }
        }
        for (std::int64_t i = 0; i < size; ++i) gQ.set(b, h, row, i, sumQ[static_cast<std::size_t>(i)]);
      }
    }
    for (std::int64_t key = 0; key < rows; ++key) {
      for (std::int64_t i = 0; i < size; ++i) {
        const auto at = static_cast<std::size_t>(key * size + i);
        gK.set(b, keys, key, i, sumK[at]), gV.set(b, keys, key, i, sumV[at]);
      }
    }
  }
};

}  // namespace

Status ModelAttention::prepare(const AttentionProblem&, AttentionPass, std::int64_t) {
  return Status::success();
}

Status ModelAttention::compute(const Queue& queue, const AttentionProblem& problem, AttentionPass pass,
                               const LibraryAttention& views) {
  return runOn(queue, "attention", [problem, pass, views]() -> Status {
    const model::OpenMemory open;
    const Plain plain(problem, views);
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      if (pass == AttentionPass::backward) {
        for (std::int64_t keys = 0; keys < problem.kvHeads; ++keys) plain.backward(b, keys);
        continue;
      }
      for (std::int64_t h = 0; h < problem.heads; ++h) {
        for (std::int64_t row = 0; row < problem.sequence; ++row) plain.forward(b, h, row);
      }
    }
    return Status::success();
  });
}

}  // namespace internevo::cuda
