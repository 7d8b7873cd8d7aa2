#include <algorithm>

#include "cuda/check/timing.h"

namespace internevo::check {

namespace {

constexpr double kTera = 1e12;

void products(Backend& device, bool small, Timer* timer) {
  struct Shape {
    const char* name;
    std::int64_t rows, inputs, outputs;
  };
  const std::vector<Shape> shapes = small ? std::vector<Shape>{{"small", 32, 32, 32}}
                                          : std::vector<Shape>{{"square", 8192, 8192, 8192},
                                                               {"7B qkv", 8192, 4096, 12288},
                                                               {"7B gate and up", 8192, 4096, 22016},
                                                               {"7B down", 8192, 11008, 4096}};
  for (const Shape& shape : shapes) {
    const LinearShape s{shape.rows, shape.inputs, shape.outputs};
    Operands o(device.memory());
    const View x = o.take(s.rows * s.inputs), w = o.take(s.inputs * s.outputs),
               y = o.take(s.rows * s.outputs);
    const View gW = o.take(s.inputs * s.outputs, DataType::float32);
    const Workspace scratch = o.scratch(device.linearWorkspaceBytes());
    const double work =
        2e-12 * static_cast<double>(s.rows) * static_cast<double>(s.inputs) * static_cast<double>(s.outputs);
    const std::string name = std::string("product bf16, ") + shape.name;
    timer->time(name + ", forward", work, "TFLOP", o,
                [&] { return device.linearForward(s, x, w, y, scratch); });
    timer->time(name + ", G-X", work, "TFLOP", o,
                [&] { return device.linearGradInput(s, y, w, x, false, scratch); });
    timer->time(name + ", G-W", work, "TFLOP", o,
                [&] { return device.linearGradWeight(s, x, y, gW, scratch); });
  }
}

struct AttentionLengths {
  std::int64_t sequence, heads, kvHeads, headSize, document;  ///< document 0: each sequence is one
};

/// Products of forward, in units of 1e12 operations: two of 2 · headSize for every pair of a query and a key that it sees.
double forwardWork(const AttentionLengths& l) {
  const double length = static_cast<double>(l.document == 0 ? l.sequence : l.document);
  return 2e-12 * length * static_cast<double>(l.sequence * l.heads * l.headSize);
}

/// Causal: half of the products of a full square. Backward counts five products for forward's two.
void attention(Backend& device, const AttentionLengths& l, Timer* timer) {
  AttentionShape s{1, l.sequence, l.heads, l.kvHeads, l.headSize};
  Operands o(device.memory());
  const std::int64_t n = l.sequence * l.heads * l.headSize, kv = l.sequence * l.kvHeads * l.headSize;
  const View q = o.take(n), k = o.take(kv), v = o.take(kv), out = o.take(n), gO = o.take(n), gQ = o.take(n),
             gK = o.take(kv), gV = o.take(kv);
  const View statistics = o.take(l.heads * l.sequence, DataType::float32);
  if (l.document != 0) {
    const View firstKeys = o.take(l.sequence, DataType::int32);
    std::vector<std::int32_t> first(static_cast<std::size_t>(l.sequence));
    for (std::int64_t i = 0; i < l.sequence; ++i)
      first[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i / l.document * l.document);
    if (o.status.ok()) o.status = device.memory().upload(firstKeys.data, first.data(), 4 * l.sequence);
    s.firstKeys = firstKeys;
  }
  const Workspace scratch = o.scratch(device.attentionWorkspaceBytes(s));
  std::string name =
      "attention bf16, heads of " + std::to_string(l.headSize) + ", " + std::to_string(l.sequence);
  if (l.kvHeads != l.heads) name += ", " + std::to_string(l.heads / l.kvHeads) + " queries a key";
  if (l.document != 0) name += ", documents of " + std::to_string(l.document);
  timer->time(name + ", forward", forwardWork(l), "TFLOP", o,
              [&] { return device.attentionForward(s, q, k, v, out, statistics, scratch); });
  timer->time(name + ", backward", 2.5 * forwardWork(l), "TFLOP", o,
              [&] { return device.attentionBackward(s, q, k, v, out, statistics, gO, gQ, gK, gV, scratch); });
}

/// What memory bounds: bytes read and written once.
void streams(Backend& device, bool small, Timer* timer) {
  const std::int64_t rows = small ? 8 : 16384, width = small ? 64 : 4096, n = rows * width;
  Operands o(device.memory());
  const View a = o.take(n), b = o.take(n), c = o.take(n), d = o.take(n), gain = o.take(width);
  const View rms = o.take(rows, DataType::float32), w = o.take(n, DataType::float32),
             g = o.take(n, DataType::float32), m = o.take(n, DataType::float32),
             second = o.take(n, DataType::float32);
  const double tera = static_cast<double>(n) / kTera;
  AdamwSettings settings;
  settings.learningRate = 1e-4f;
  ExactSum sum;
  timer->time("copy", 4 * tera, "TB", o, [&] { return device.memory().copy(b.data, a.data, 2 * n); });
  timer->time("rmsnorm with residual, forward", 8 * tera, "TB", o, [&] {
    return device.rmsNormForward({rows, width}, a, b, gain, 1e-5f, c, d, rms);
  });
  const Workspace scratch = o.scratch(device.normWorkspaceBytes({rows, width}));
  timer->time("rmsnorm, backward", 6 * tera, "TB", o, [&] {
    return device.rmsNormBackward({rows, width}, a, gain, rms, b, {}, d, {g.data, DataType::float32},
                                  scratch);
  });
  timer->time("swiglu, forward", 6 * tera, "TB", o, [&] {
    return device.swigluForward({rows, width}, a, b, c);
  });
  timer->time("adamw with master weights", 30 * tera, "TB", o,
              [&] { return device.adamw(n, settings, a, w, g, m, second); });
  timer->time("squared norm", 4 * tera, "TB", o, [&] { return device.squaredNorm(n, g, &sum); });
}

/// Of the largest figure of its unit.
void setShares(std::vector<Measured>* results) {
  for (Measured& m : *results) {
    double best = 0;
    for (const Measured& other : *results) {
      if (other.unit == m.unit) best = std::max(best, other.figure);
    }
    m.share = best > 0 ? m.figure / best : 0;
  }
}

}  // namespace

std::vector<Measured> attentionBenchmarks(Backend& device, bool small) {
  std::vector<Measured> results;
  Timer timer(device, small, &results);
  const std::vector<AttentionLengths> lengths =
      small ? std::vector<AttentionLengths>{{70, 2, 1, 64, 30}}
            : std::vector<AttentionLengths>{{4096, 32, 32, 128, 0}, {16384, 32, 32, 128, 0},
                                            {65536, 8, 8, 128, 0},  {16384, 32, 8, 128, 0},
                                            {16384, 32, 32, 64, 0}, {16384, 32, 32, 128, 4096}};
  for (const AttentionLengths& each : lengths) attention(device, each, &timer);
  setShares(&results);
  return results;
}

std::vector<Measured> productBenchmarks(Backend& device, bool small) {
  std::vector<Measured> results;
  Timer timer(device, small, &results);
  products(device, small, &timer);
  setShares(&results);
  return results;
}

std::vector<Measured> streamBenchmarks(Backend& device, bool small) {
  std::vector<Measured> results;
  Timer timer(device, small, &results);
  streams(device, small, &timer);
  setShares(&results);
  return results;
}

}  // namespace internevo::check
