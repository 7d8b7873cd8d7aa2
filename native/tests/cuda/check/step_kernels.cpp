#include "cuda/check/step_kernels.h"

#include "cuda/check/timing.h"
#include "trainer/memory_plan.h"

namespace internevo::check {

namespace {

constexpr double kTera = 1e12;
/// Of one kernel: three rounds of so long. A step has two dozen kernels, and a check four lengths.
constexpr int kRounds = 3;
constexpr double kRoundSeconds = 0.04;
constexpr const char* kProduct = "TFLOP";

class StepTimer {
 public:
  StepTimer(Backend& device, const trainer::ModelConfig& model, std::int64_t sequence,
            std::int64_t recomputed, bool small)
      : device_(device),
        m_(model),
        rows_(sequence),
        layers_(static_cast<double>(model.layers)),
        again_(static_cast<double>(recomputed)),
        timer_(device, small, &result_.each, kRounds, kRoundSeconds) {}

  StepKernels run() {
    norms();
    products();
    attention();
    elementwise();
    ends();
    states();
    for (std::size_t i = 0; i < result_.each.size(); ++i) {
      const Measured& kernel = result_.each[i];
      result_.seconds += kernel.seconds * result_.callsAStep[i];
      if (result_.message.empty() && !kernel.message.empty())
        result_.message = kernel.name + ": " + kernel.message;
    }
    return result_;
  }

 private:
  void time(const std::string& name, double calls, double work, const char* unit, const Operands& o,
            const std::function<Status()>& call) {
    timer_.time(name, work, unit, o, call);
    result_.callsAStep.push_back(calls);
  }
  void timeBytes(const std::string& name, double calls, double bytes, const Operands& o,
                 const std::function<Status()>& call) {
    time(name, calls, bytes / kTera, "TB", o, call);
  }
  void timeProduct(const std::string& name, double calls, const LinearShape& s, const Operands& o,
                   const std::function<Status()>& call) {
    const double work = 2 * static_cast<double>(s.rows) * static_cast<double>(s.inputs) *
                        static_cast<double>(s.outputs) / kTera;
    time(name, calls, work, kProduct, o, call);
    result_.productTeraFlops += calls * work;
    result_.bestProductFigure = std::max(result_.bestProductFigure, result_.each.back().figure);
  }

  void norms() {
    Operands o(device_.memory());
    const std::int64_t n = rows_ * m_.hiddenSize;
    const View x = o.take(n), residual = o.take(n), sum = o.take(n), y = o.take(n),
               gain = o.take(m_.hiddenSize);
    const View rms = o.take(rows_, DataType::float32), gGain = o.take(m_.hiddenSize, DataType::float32);
    const NormShape s{rows_, m_.hiddenSize};
    const Workspace scratch = o.scratch(device_.normWorkspaceBytes(s));
    const auto epsilon = static_cast<float>(m_.normEpsilon);
    const double hidden = 2.0 * static_cast<double>(n);
    // Attention's norm forward; both again for the gradients; and the final norm.
    timeBytes("rmsnorm forward", 3 * layers_ + again_ + 1, 2 * hidden, o,
              [&] { return device_.rmsNormForward(s, x, {}, gain, epsilon, {}, y, rms); });
    timeBytes("rmsnorm forward with residual", layers_ + again_, 4 * hidden, o,
              [&] { return device_.rmsNormForward(s, x, residual, gain, epsilon, sum, y, rms); });
    timeBytes("rmsnorm backward with residual", 2 * layers_, 4 * hidden, o,
              [&] { return device_.rmsNormBackward(s, x, gain, rms, residual, sum, sum, gGain, scratch); });
    timeBytes("rmsnorm backward", 1, 3 * hidden, o,
              [&] { return device_.rmsNormBackward(s, x, gain, rms, residual, {}, y, gGain, scratch); });
    timeBytes("residual add", layers_, 3 * hidden, o, [&] { return device_.add(n, x, residual, y); });
  }

  void products() {
    struct Module {
      const char* name;
      std::int64_t inputs, outputs;
      bool again;  ///< a recomputed layer computes it twice
    };
    const std::int64_t h = m_.hiddenSize;
    for (const Module& each : {Module{"qkv", h, h + 2 * m_.kvWidth(), true},
                               {"attention output", h, h, true},
                               {"gate and up", h, 2 * m_.ffnHiddenSize, true},
                               {"down", m_.ffnHiddenSize, h, false}}) {
      Operands o(device_.memory());
      const LinearShape s{rows_, each.inputs, each.outputs};
      const View x = o.take(s.rows * s.inputs), w = o.take(s.inputs * s.outputs),
                 y = o.take(s.rows * s.outputs);
      const View gW = o.take(s.inputs * s.outputs, DataType::float32);
      const Workspace scratch = o.scratch(device_.linearWorkspaceBytes());
      const std::string name = each.name;
      timeProduct(name + " forward", layers_ + (each.again ? again_ : 0), s, o,
                  [&] { return device_.linearForward(s, x, w, y, scratch); });
      timeProduct(name + " G-X", layers_, s, o,
                  [&] { return device_.linearGradInput(s, y, w, x, false, scratch); });
      timeProduct(name + " G-W", layers_, s, o,
                  [&] { return device_.linearGradWeight(s, x, y, gW, scratch); });
    }
  }

  /// On one buffer of q, k and v, as the layers have them.
  void attention() {
    Operands o(device_.memory());
    const std::int64_t width = m_.hiddenSize + 2 * m_.kvWidth(), h = m_.hiddenSize;
    const View qkv = o.take(rows_ * width), gQkv = o.take(rows_ * width), out = o.take(rows_ * h),
               gOut = o.take(rows_ * h);
    const View statistics = o.take(m_.heads * rows_, DataType::float32);
    const View cosines = o.take(rows_ * m_.headSize() / 2, DataType::float32),
               sines = o.take(rows_ * m_.headSize() / 2, DataType::float32);
    AttentionShape s{1, rows_, m_.heads, m_.kvHeads, m_.headSize()};
    s.queryStride = s.keyStride = s.valueStride = width;
    const Workspace scratch = o.scratch(device_.attentionWorkspaceBytes(s));
    const std::int64_t k = h, v = h + m_.kvWidth();
    const double work =
        2 * static_cast<double>(rows_) * static_cast<double>(rows_) * static_cast<double>(h) / kTera;
    time("attention forward", layers_ + again_, work, kProduct, o, [&] {
      return device_.attentionForward(s, qkv, qkv.offset(k), qkv.offset(v), out, statistics, scratch);
    });
    time("attention backward", layers_, 2.5 * work, kProduct, o, [&] {
      return device_.attentionBackward(s, qkv, qkv.offset(k), qkv.offset(v), out, statistics, gOut, gQkv,
                                       gQkv.offset(k), gQkv.offset(v), scratch);
    });
    if (o.status.ok()) o.status = device_.ropeTable(rows_, m_.headSize(), m_.ropeTheta, cosines, sines);
    const auto rotate = [&](bool backward) {
      RopeShape r;
      r.rows = r.sequence = rows_, r.headSize = m_.headSize(), r.stride = width;
      for (const bool key : {false, true}) {
        r.heads = key ? m_.kvHeads : m_.heads;
        const View part = qkv.offset(key ? k : 0);
        INTERNEVO_RETURN_IF_ERROR(backward ? device_.ropeBackward(r, cosines, sines, part)
                                           : device_.ropeForward(r, cosines, sines, part));
      }
      return Status::success();
    };
    const double bytes = 4 * static_cast<double>(rows_) * static_cast<double>(h + m_.kvWidth());
    timeBytes("rope forward, q and k", layers_ + again_, bytes, o, [&] { return rotate(false); });
    timeBytes("rope backward, q and k", layers_, bytes, o, [&] { return rotate(true); });
  }

  void elementwise() {
    Operands o(device_.memory());
    const std::int64_t f = m_.ffnHiddenSize;
    const View gateUp = o.take(rows_ * 2 * f), y = o.take(rows_ * f), gY = o.take(rows_ * f);
    const SwigluShape s{rows_, f, 2 * f, 0};
    const double bytes = 2 * static_cast<double>(rows_ * f);
    timeBytes("swiglu forward", 2 * layers_, 3 * bytes, o,
              [&] { return device_.swigluForward(s, gateUp, gateUp.offset(f), y); });
    timeBytes("swiglu backward", layers_, 5 * bytes, o, [&] {
      return device_.swigluBackward(s, gateUp, gateUp.offset(f), gY, gateUp, gateUp.offset(f));
    });
  }

  void ends() {
    Operands o(device_.memory());
    const std::int64_t h = m_.hiddenSize, vocabulary = m_.vocabularySize;
    const View x = o.take(rows_ * h), gX = o.take(rows_ * h), table = o.take(vocabulary * h),
               gTable = o.take(vocabulary * h, DataType::float32);
    const View tokens = o.tokens(rows_, vocabulary);
    const double hidden = 2 * static_cast<double>(rows_ * h);
    const EmbeddingShape embedding{rows_, h, vocabulary};
    timeBytes("embedding forward", 1, 2 * hidden, o,
              [&] { return device_.embeddingForward(embedding, tokens, table, x); });
    timeBytes("embedding backward", 1, 3 * hidden, o,
              [&] { return device_.embeddingBackward(embedding, tokens, x, gTable); });
    const HeadLossShape head{rows_, h, vocabulary, device_.lossChunkRows()};
    const Workspace scratch = o.scratch(device_.headLossWorkspaceBytes(head));
    ExactSum loss;
    const double work =
        6 * static_cast<double>(rows_) * static_cast<double>(h) * static_cast<double>(vocabulary) / kTera;
    time("head and loss", 1, work, kProduct, o,
         [&] { return device_.headLoss(head, x, table, tokens, 1e-6f, &loss, gX, gTable, scratch); });
    result_.productTeraFlops += work;
  }

  /// What goes over every parameter once a step; timed on those of a layer.
  void states() {
    Operands o(device_.memory());
    const std::int64_t h = m_.hiddenSize, n = h * (2 * h + 2 * m_.kvWidth() + 3 * m_.ffnHiddenSize + 2);
    const double elements = static_cast<double>(n);
    const double calls =
        layers_ + static_cast<double>(h * ((m_.tiedEmbeddings ? 1 : 2) * m_.vocabularySize + 1)) / elements;
    const View weights = o.take(n), master = o.take(n, DataType::float32),
               gradient = o.take(n, DataType::float32);
    const View first = o.take(n, DataType::float32), second = o.take(n, DataType::float32);
    AdamwSettings settings;
    settings.learningRate = 1e-4f;
    ExactSum squares;
    timeBytes("gradients to zero", calls, 4 * elements, o,
              [&] { return device_.memory().zero(gradient.data, 4 * n); });
    timeBytes("squared norm", calls, 4 * elements, o,
              [&] { return device_.squaredNorm(n, gradient, &squares); });
    timeBytes("adamw", calls, 30 * elements, o,
              [&] { return device_.adamw(n, settings, weights, master, gradient, first, second); });
  }

  Backend& device_;
  const trainer::ModelConfig& m_;
  const std::int64_t rows_;
  const double layers_, again_;
  StepKernels result_;
  Timer timer_;
};

}  // namespace

StepKernels timeStepKernels(Backend& device, const trainer::ModelConfig& model, std::int64_t sequence,
                            std::int64_t recomputed, bool small) {
  return StepTimer(device, model, sequence, recomputed, small).run();
}

}  // namespace internevo::check
