// Processor time of every operator of one training step on one core, as in the trainer with one rank, and what its
// multiplications reach of the core's fused multiply-adds.
// Not a test: cmake --build build --target step_benchmark && build/tests/ops/step_benchmark [a|b|c] [fp32|bf16] [rounds] [part of a name]
#include <cstdio>
#include <functional>
#include <string>

#include "ops/benchmark_clock.h"
#include "ops/support.h"

namespace internevo::test {
namespace {

struct Model {
  std::int64_t hidden, layers, heads, ffn, vocabulary, sequence, batch;
};

struct Operator {
  std::string name;
  std::int64_t times;  // in a step
  double flops;        // of one call; the causal half of attention
  std::function<Status()> run;
};

class Step {
 public:
  Step(const Model& m, DataType type) : m_(m), type_(type), backend_(createCpuBackend(1)) {
    linearOperators("qkv", m.hidden, 3 * m.hidden, 3 * m.hidden);
    linearOperators("attention output", m.hidden, m.hidden, m.hidden);
    linearOperators("gate and up", m.hidden, 2 * m.ffn, 2 * m.ffn);
    linearOperators("down", m.ffn, m.hidden, m.hidden);
    attentionOperators();
    rowOperators();
    headAndUpdate();
  }

  void report(int rounds, const std::string& part) {
    double total = 0, products = 0, productFlops = 0;
    for (int i = 0; i < 9; ++i) peak_ = std::max(peak_, peakFlopsPerSecond());
    for (const Operator& each : operators_) {
      if (each.name.find(part) == std::string::npos) continue;
      std::vector<double> seconds;
      for (int round = 0; round < rounds; ++round) {
        seconds.push_back(secondsOf([&] {
          const Status status = each.run();
          if (!status.ok()) std::printf("%s: %s\n", each.name.c_str(), status.message().c_str());
        }));
      }
      const double step = least(seconds) * static_cast<double>(each.times);
      total += step;
      if (each.flops > 0) {
        products += step;
        productFlops += each.flops * static_cast<double>(each.times);
      }
      std::printf("%-28s %8.2f ms a step", each.name.c_str(), 1e3 * step);
      if (each.flops > 0) std::printf("  %4.0f%% of peak", 100 * each.flops / least(seconds) / peak_);
      std::printf("\n");
    }
    std::printf(
        "%-28s %8.2f ms a step; products %.2f ms, %.1f GFLOP; at peak (%.1f GFLOP/s) %.2f ms: %.0f%%\n",
        "all", 1e3 * total, 1e3 * products, 1e-9 * productFlops, 1e-9 * peak_, 1e3 * productFlops / peak_,
        100 * productFlops / peak_ / total);
  }

 private:
  View make(std::int64_t elements, DataType type, double scale = 1.0) {
    Values values =
        randomValues(std::min<std::int64_t>(elements, 4099), static_cast<unsigned>(buffers_.size()), scale);
    values.resize(static_cast<std::size_t>(elements));
    for (std::size_t i = 4099; i < values.size(); ++i) values[i] = values[i - 4099];
    buffers_.emplace_back(type, values);
    return buffers_.back().view();
  }
  Workspace scratch(std::int64_t bytes) {
    buffers_.emplace_back(bytes);
    return buffers_.back().workspace();
  }
  void add(std::string name, std::int64_t times, double flops, std::function<Status()> run) {
    operators_.push_back({std::move(name), times, flops, std::move(run)});
  }

  void linearOperators(const std::string& name, std::int64_t inputs, std::int64_t outputs,
                       std::int64_t stride) {
    const std::int64_t rows = m_.sequence * m_.batch;
    const LinearShape s{rows, inputs, outputs, 0, stride};
    const View x = make(rows * inputs, type_), w = make(inputs * outputs, type_, 0.02),
               y = make(rows * outputs, type_);
    const View gX = make(rows * inputs, type_), gW = make(inputs * outputs, DataType::float32);
    const Workspace work = scratch(backend_->linearWorkspaceBytes());
    const double flops = 2.0 * static_cast<double>(rows * inputs * outputs);
    add(name + " forward", m_.layers, flops, [=, this] { return backend_->linearForward(s, x, w, y, work); });
    add(name + " G-W", m_.layers, flops, [=, this] { return backend_->linearGradWeight(s, x, y, gW, work); });
    add(name + " G-X", m_.layers, flops,
        [=, this] { return backend_->linearGradInput(s, y, w, gX, false, work); });
  }

  void attentionOperators() {
    const std::int64_t rows = m_.sequence * m_.batch, width = m_.hidden, size = m_.hidden / m_.heads;
    const AttentionShape s{m_.batch,  m_.sequence, m_.heads,  m_.heads, size,
                           3 * width, 3 * width,   3 * width, width,    {}};
    const View qkv = make(rows * 3 * width, type_), o = make(rows * width, type_),
               gO = make(rows * width, type_);
    const View gQkv = make(rows * 3 * width, type_), state = make(rows * m_.heads, DataType::float32);
    const Workspace work = scratch(backend_->attentionWorkspaceBytes(s));
    const double product = static_cast<double>(rows * m_.sequence * width);
    add("attention forward", m_.layers, 2 * product, [=, this] {
      return backend_->attentionForward(s, qkv, qkv.offset(width), qkv.offset(2 * width), o, state, work);
    });
    add("attention backward", m_.layers, 5 * product, [=, this] {
      return backend_->attentionBackward(s, qkv, qkv.offset(width), qkv.offset(2 * width), o, state, gO, gQkv,
                                         gQkv.offset(width), gQkv.offset(2 * width), work);
    });
    const View cosines = make(m_.sequence * size / 2, DataType::float32),
               sines = make(m_.sequence * size / 2, DataType::float32);
    const RopeShape rope{rows, 2 * m_.heads, size, 3 * width, m_.sequence, 0, {}};
    add("rope, both passes", 2 * m_.layers, 0,
        [=, this] { return backend_->ropeForward(rope, cosines, sines, qkv); });
  }

  void rowOperators() {
    const std::int64_t rows = m_.sequence * m_.batch, width = m_.hidden;
    const NormShape norm{rows, width};
    const View x = make(rows * width, type_), y = make(rows * width, type_), sum = make(rows * width, type_);
    const View gain = make(width, type_), gGain = make(width, DataType::float32),
               inverse = make(rows, DataType::float32);
    add("rmsnorm forward", 3 * m_.layers + 2, 0,
        [=, this] { return backend_->rmsNormForward(norm, x, {}, gain, 1e-5f, {}, y, inverse); });
    add("rmsnorm and residual", m_.layers, 0,
        [=, this] { return backend_->rmsNormForward(norm, x, sum, gain, 1e-5f, sum, y, inverse); });
    add("rmsnorm backward", 2 * m_.layers + 1, 0,
        [=, this] { return backend_->rmsNormBackward(norm, x, gain, inverse, y, sum, sum, gGain, {}); });
    add("residual", m_.layers, 0, [=, this] { return backend_->add(rows * width, x, y, sum); });
    const SwigluShape swiglu{rows, m_.ffn, 2 * m_.ffn, 0};
    const View gate = make(rows * 2 * m_.ffn, type_), mlp = make(rows * m_.ffn, type_);
    add("swiglu forward", 2 * m_.layers, 0,
        [=, this] { return backend_->swigluForward(swiglu, gate, gate.offset(m_.ffn), mlp); });
    add("swiglu backward", m_.layers, 0, [=, this] {
      return backend_->swigluBackward(swiglu, gate, gate.offset(m_.ffn), mlp, gate, gate.offset(m_.ffn));
    });
  }

  void headAndUpdate() {
    const std::int64_t rows = m_.sequence * m_.batch, chunk = std::min<std::int64_t>(rows, kSumBlockRows);
    const HeadLossShape s{rows, m_.hidden, m_.vocabulary, chunk};
    const View x = make(rows * m_.hidden, type_), w = make(m_.vocabulary * m_.hidden, type_, 0.02),
               gX = make(rows * m_.hidden, type_);
    const View gW = make(m_.vocabulary * m_.hidden, DataType::float32);
    targets_.assign(static_cast<std::size_t>(rows), 0);
    for (std::size_t i = 0; i < targets_.size(); ++i)
      targets_[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(m_.vocabulary));
    const View targets{targets_.data(), DataType::int32};
    const Workspace work = scratch(backend_->headLossWorkspaceBytes(s));
    const double flops = 6.0 * static_cast<double>(rows * m_.hidden * m_.vocabulary);
    add("head and loss", 1, flops, [=, this] {
      ExactSum loss;
      return backend_->headLoss(s, x, w, targets, 1e-3f, &loss, gX, gW, work);
    });
    const std::int64_t elements =
        m_.layers * (4 * m_.hidden * m_.hidden + 3 * m_.hidden * m_.ffn) + 2 * m_.vocabulary * m_.hidden;
    const View weights = make(elements, type_),
               master = make(type_ == DataType::float32 ? 1 : elements, DataType::float32);
    const View g = make(elements, DataType::float32), first = make(elements, DataType::float32),
               second = make(elements, DataType::float32, 0.0);
    add("adamw", 1, 0, [=, this] {
      return backend_->adamw(elements, {}, weights, type_ == DataType::float32 ? View{} : master, g, first,
                             second);
    });
    add("squared norm", 1, 0, [=, this] {
      ExactSum sum;
      return backend_->squaredNorm(elements, g, &sum);
    });
  }

  Model m_;
  DataType type_;
  std::unique_ptr<Backend> backend_;
  std::vector<Buffer> buffers_;
  std::vector<std::int32_t> targets_;
  std::vector<Operator> operators_;
  double peak_ = 0;
};

}  // namespace
}  // namespace internevo::test

int main(int count, char** arguments) {
  using internevo::test::Model;
  const std::string model = count > 1 ? arguments[1] : "a", precision = count > 2 ? arguments[2] : "fp32";
  const Model sizes = model == "b"   ? Model{512, 8, 8, 1376, 8192, 1024, 2}
                      : model == "c" ? Model{256, 4, 8, 704, 4096, 4096, 1}
                                     : Model{256, 4, 8, 704, 4096, 512, 4};
  internevo::test::Step(sizes,
                        precision == "bf16" ? internevo::DataType::bfloat16 : internevo::DataType::float32)
      .report(count > 3 ? std::atoi(arguments[3]) : 7, count > 4 ? arguments[4] : "");
}
