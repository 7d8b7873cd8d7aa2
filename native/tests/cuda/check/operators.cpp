#include <cmath>
#include <optional>
#include <random>

#include "cuda/check/harness.h"

namespace internevo::check {

namespace {

using Views = std::vector<View>;

Values normal(std::int64_t count, unsigned seed, double scale = 1) {
  return [=] {
    std::mt19937 engine(seed);
    std::normal_distribution<double> distribution(0, scale);
    std::vector<double> values(static_cast<std::size_t>(count));
    for (double& value : values) value = distribution(engine);
    return values;
  };
}
Values constant(std::int64_t count, double value) {
  return [=] { return std::vector<double>(static_cast<std::size_t>(count), value); };
}
Values zeros(std::int64_t count) { return constant(count, 0); }
/// `first`: of the first row; the others are random.
Values tokens(std::int64_t count, std::int64_t vocabulary, unsigned seed, std::optional<double> first = {}) {
  return [=] {
    std::mt19937 engine(seed);
    std::vector<double> values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<double>(static_cast<std::int64_t>(engine()) % vocabulary));
    if (first) values[0] = *first;
    return values;
  };
}

Tensor in(const char* name, Values values, Kind kind = Kind::storage) {
  return {name, kind, std::move(values), false};
}
Tensor out(const char* name, Values values, Kind kind = Kind::storage) {
  return {name, kind, std::move(values), true};
}
Tensor gradient(const char* name, std::int64_t count) {
  return out(name, normal(count, 77), Kind::float32);
}  // it is added to

std::string sized(const std::string& name, std::initializer_list<std::int64_t> sizes) {
  std::string text = name;
  char separator = ' ';
  for (const std::int64_t size : sizes) text += separator + std::to_string(size), separator = 'x';
  return text;
}

std::int64_t linearScratch(const Backend& backend) { return backend.linearWorkspaceBytes(); }

Case linear(std::int64_t rows, std::int64_t inputs, std::int64_t outputs) {
  const double scale = 1 / std::sqrt(static_cast<double>(inputs));
  return {sized("linear forward, G-X, G-W", {rows, inputs, outputs}),
          {in("x", normal(rows * inputs, 1)), in("w", normal(outputs * inputs, 2, scale)),
           in("gY", normal(rows * outputs, 3)), out("y", zeros(rows * outputs)),
           out("gX", zeros(rows * inputs)), gradient("gW", outputs * inputs)},
          linearScratch,
          [=](Backend& b, const Views& t, Workspace w, ExactSum*) {
            const LinearShape s{rows, inputs, outputs};
            INTERNEVO_RETURN_IF_ERROR(b.linearForward(s, t[0], t[1], t[3], w));
            INTERNEVO_RETURN_IF_ERROR(b.linearGradInput(s, t[2], t[1], t[4], false, w));
            return b.linearGradWeight(s, t[0], t[2], t[5], w);
          }};
}

Case norm(std::int64_t rows, std::int64_t width) {
  return {
      sized("rmsnorm with residual, backward", {rows, width}),
      {in("x", normal(rows * width, 1)), in("residual", normal(rows * width, 2)),
       in("gain", normal(width, 3)), in("gY", normal(rows * width, 4)), in("gSum", normal(rows * width, 5)),
       out("sum", zeros(rows * width)), out("y", zeros(rows * width)),
       out("inverseRms", zeros(rows), Kind::float32), out("gH", zeros(rows * width)),
       gradient("gGain", width)},
      [=](const Backend& b) {
        return b.normWorkspaceBytes({rows, width});
      },
      [=](Backend& b, const Views& t, Workspace w, ExactSum*) {
        INTERNEVO_RETURN_IF_ERROR(b.rmsNormForward({rows, width}, t[0], t[1], t[2], 1e-5f, t[5], t[6], t[7]));
        return b.rmsNormBackward({rows, width}, t[5], t[2], t[7], t[3], t[4], t[8], t[9], w);
      }};
}

/// Heads at the start of rows of `stride`; the gradient takes the place of gY.
Case headNorm(std::int64_t rows, std::int64_t heads, std::int64_t headSize, std::int64_t stride) {
  const HeadNormShape s{rows, heads, headSize, stride, stride};
  return {sized("norm of heads, backward", {rows, heads, headSize, stride}),
          {in("x", normal(rows * stride, 1)), in("gain", normal(headSize, 2)), out("y", zeros(rows * stride)),
           out("inverseRms", zeros(rows * heads), Kind::float32), out("gX", normal(rows * stride, 3)),
           gradient("gGain", headSize)},
          [=](const Backend& b) {
            return b.normWorkspaceBytes({rows * heads, headSize});
          },
          [=](Backend& b, const Views& t, Workspace w, ExactSum*) {
            INTERNEVO_RETURN_IF_ERROR(b.headNormForward(s, t[0], t[1], 1e-6f, t[2], t[3]));
            return b.headNormBackward(s, t[0], t[1], t[3], t[4], t[4], t[5], w);
          }};
}

/// Rows with a gap between them, as the keys of a packed q|k|v have it.
Case bias(std::int64_t rows, std::int64_t outputs, std::int64_t stride) {
  const BiasShape s{rows, outputs, stride};
  return {sized("bias and its gradient", {rows, outputs, stride}),
          {in("bias", normal(outputs, 1)), in("gY", normal(rows * stride, 2)),
           out("y", normal(rows * stride, 3)), gradient("gBias", outputs)},
          [=](const Backend& b) {
            return b.normWorkspaceBytes({rows, outputs});
          },
          [=](Backend& b, const Views& t, Workspace w, ExactSum*) {
            INTERNEVO_RETURN_IF_ERROR(b.biasAdd(s, t[0], t[2]));
            return b.biasGradient(s, t[1], t[3], w);
          }};
}

Case rope(std::int64_t rows, std::int64_t heads, std::int64_t headSize) {
  const std::int64_t half = rows * headSize / 2;
  return {sized("rope and back", {rows, heads, headSize}),
          {out("x", normal(rows * heads * headSize, 1)), out("gX", normal(rows * heads * headSize, 2)),
           out("cosines", zeros(half), Kind::float32), out("sines", zeros(half), Kind::float32)},
          {},
          [=](Backend& b, const Views& t, Workspace, ExactSum*) {
            const RopeShape s{rows, heads, headSize, 0, rows, 0};
            INTERNEVO_RETURN_IF_ERROR(b.ropeTable(rows, headSize, 10000, t[2], t[3]));
            INTERNEVO_RETURN_IF_ERROR(b.ropeForward(s, t[2], t[3], t[0]));
            return b.ropeBackward(s, t[2], t[3], t[1]);
          }};
}

/// The first half of each head, with the frequencies of YaRN.
Case scaledRope(std::int64_t rows, std::int64_t heads, std::int64_t headSize) {
  const std::int64_t tables = rows * headSize / 4;
  return {sized("scaled rope of half a head, and back", {rows, heads, headSize}),
          {out("x", normal(rows * heads * headSize, 1)), out("gX", normal(rows * heads * headSize, 2)),
           out("cosines", zeros(tables), Kind::float32), out("sines", zeros(tables), Kind::float32)},
          {},
          [=](Backend& b, const Views& t, Workspace, ExactSum*) {
            const RopeFields fields{headSize, 10000, headSize / 2, {RopeScalingKind::yarn, 4, 4096}};
            const RopeShape s{rows, heads, headSize, 0, rows, 0, {}, fields.rotarySize};
            RopeFrequencies frequencies;
            INTERNEVO_RETURN_IF_ERROR(ropeFrequencies(fields, &frequencies));
            INTERNEVO_RETURN_IF_ERROR(b.ropeTable(rows, frequencies, t[2], t[3]));
            INTERNEVO_RETURN_IF_ERROR(b.ropeForward(s, t[2], t[3], t[0]));
            return b.ropeBackward(s, t[2], t[3], t[1]);
          }};
}

/// First positions of documents of `length` tokens; 0: one document.
Values documents(std::int64_t batch, std::int64_t sequence, std::int64_t length) {
  return [=] {
    std::vector<double> first;
    for (std::int64_t row = 0; row < batch * sequence; ++row) {
      first.push_back(length == 0 ? 0. : static_cast<double>(row % sequence / length * length));
    }
    return first;
  };
}

const std::vector<std::string> kAllKinds{"warp", "warpgroup", "cudnn"};

Case attention(std::int64_t batch, std::int64_t sequence, std::int64_t heads, std::int64_t kvHeads,
               std::int64_t headSize, std::int64_t documentLength, const std::vector<std::string>& kinds) {
  const std::int64_t queries = batch * sequence * heads * headSize,
                     keys = batch * sequence * kvHeads * headSize;
  const AttentionShape shape{batch, sequence, heads, kvHeads, headSize};
  return {
      sized(documentLength == 0 ? "attention, backward" : "attention of documents, backward",
            {batch, sequence, heads, kvHeads, headSize}),
      {in("q", normal(queries, 1)), in("k", normal(keys, 2)), in("v", normal(keys, 3)),
       in("gO", normal(queries, 4)), in("firstKeys", documents(batch, sequence, documentLength), Kind::int32),
       out("o", zeros(queries)), out("logSumExp", zeros(batch * heads * sequence), Kind::float32),
       out("gQ", zeros(queries)), out("gK", zeros(keys)), out("gV", zeros(keys))},
      [=](const Backend& b) { return b.attentionWorkspaceBytes(shape); },
      [=](Backend& b, const Views& t, Workspace w, ExactSum*) {
        AttentionShape s = shape;
        if (documentLength != 0) s.firstKeys = t[4];
        INTERNEVO_RETURN_IF_ERROR(b.attentionForward(s, t[0], t[1], t[2], t[5], t[6], w));
        return b.attentionBackward(s, t[0], t[1], t[2], t[5], t[6], t[3], t[7], t[8], t[9], w);
      },
      kinds};
}

/// Queries of the second half of a sequence against the first half of the keys, then, merged, against the second.
Case attentionPieces(std::int64_t sequence, std::int64_t heads, std::int64_t headSize) {
  const std::int64_t half = sequence / 2, queries = half * heads * headSize;
  const auto piece = [=](std::int64_t key) {
    AttentionBlockShape s{{1, half, heads, heads, headSize}};
    s.keySequence = half, s.queryPosition = half, s.keyPosition = key;
    return s;
  };
  return {sized("attention in two pieces, backward", {sequence, heads, headSize}),
          {in("q", normal(queries, 1)), in("k", normal(2 * queries, 2)), in("v", normal(2 * queries, 3)),
           in("gO", normal(queries, 4)), out("o", zeros(queries), Kind::float32),
           out("logSumExp", constant(heads * half, -INFINITY), Kind::float32),
           out("o in storage", zeros(queries)), out("gQ", zeros(queries), Kind::float32),
           out("gK", zeros(2 * queries), Kind::float32), out("gV", zeros(2 * queries), Kind::float32)},
          [=](const Backend& b) { return b.attentionBlockWorkspaceBytes(piece(0)); },
          [=](Backend& b, const Views& t, Workspace w, ExactSum*) {
            for (const std::int64_t key : {std::int64_t{0}, half}) {
              const std::int64_t at = key * heads * headSize;
              INTERNEVO_RETURN_IF_ERROR(b.attentionBlockForward(piece(key), t[0], t[1].offset(at),
                                                                t[2].offset(at), true, t[4], t[5], w));
            }
            INTERNEVO_RETURN_IF_ERROR(b.convert(queries, t[4], t[6]));
            for (const std::int64_t key : {std::int64_t{0}, half}) {
              const std::int64_t at = key * heads * headSize;
              INTERNEVO_RETURN_IF_ERROR(b.attentionBlockBackward(piece(key), t[0], t[1].offset(at),
                                                                 t[2].offset(at), t[6], t[5], t[3], t[7],
                                                                 t[8].offset(at), t[9].offset(at), w));
            }
            return Status::success();
          },
          kAllKinds};
}

Case swiglu(std::int64_t rows, std::int64_t width) {
  const std::int64_t n = rows * width;
  return {sized("swiglu, backward", {rows, width}),
          {in("gate", normal(n, 1)), in("up", normal(n, 2)), in("gY", normal(n, 3)), out("y", zeros(n)),
           out("gGate", zeros(n)), out("gUp", zeros(n))},
          {},
          [=](Backend& b, const Views& t, Workspace, ExactSum*) {
            INTERNEVO_RETURN_IF_ERROR(b.swigluForward({rows, width}, t[0], t[1], t[3]));
            return b.swigluBackward({rows, width}, t[0], t[1], t[2], t[4], t[5]);
          }};
}

Case embedding(std::int64_t rows, std::int64_t width, std::int64_t vocabulary) {
  return {sized("embedding, backward", {rows, width, vocabulary}),
          {in("tokens", tokens(rows, vocabulary, 1), Kind::int32), in("table", normal(vocabulary * width, 2)),
           in("gY", normal(rows * width, 3)), out("y", zeros(rows * width)),
           gradient("gTable", vocabulary * width)},
          {},
          [=](Backend& b, const Views& t, Workspace, ExactSum*) {
            INTERNEVO_RETURN_IF_ERROR(b.embeddingForward({rows, width, vocabulary}, t[0], t[1], t[3]));
            return b.embeddingBackward({rows, width, vocabulary}, t[0], t[2], t[4]);
          }};
}

Case headLoss(std::int64_t rows, std::int64_t width, std::int64_t vocabulary, std::int64_t chunk) {
  const HeadLossShape s{rows, width, vocabulary, chunk};
  return {sized("head and loss", {rows, width, vocabulary}),
          {in("targets", tokens(rows, vocabulary, 1, -1.), Kind::int32), in("x", normal(rows * width, 2)),
           in("w", normal(vocabulary * width, 3, 1 / std::sqrt(static_cast<double>(width)))),
           out("gX", zeros(rows * width)), gradient("gW", vocabulary * width)},
          [=](const Backend& b) { return b.headLossWorkspaceBytes(s); },
          [=](Backend& b, const Views& t, Workspace w, ExactSum* sum) {
            return b.headLoss(s, t[1], t[2], t[0], 1.f, sum, t[3], t[4], w);
          }};
}

Case headSlices(std::int64_t rows, std::int64_t width, std::int64_t vocabulary) {
  const std::int64_t half = vocabulary / 2, statistics = 2 * rows * kHeadStatistics;
  return {sized("head and loss in two slices", {rows, width, vocabulary}),
          {in("targets", tokens(rows, vocabulary, 1), Kind::int32), in("x", normal(rows * width, 2)),
           in("w", normal(vocabulary * width, 3, 1 / std::sqrt(static_cast<double>(width)))),
           in("logits", zeros(rows * vocabulary), Kind::float32),
           out("statistics", zeros(statistics), Kind::float64), out("gX of 0", zeros(rows * width)),
           out("gX of 1", zeros(rows * width)), gradient("gW", vocabulary * width)},
          linearScratch,
          [=](Backend& b, const Views& t, Workspace w, ExactSum* sum) {
            for (int slice = 0; slice < 2; ++slice) {
              const HeadSliceShape s{rows, width, half, slice * half, vocabulary};
              INTERNEVO_RETURN_IF_ERROR(b.headSliceForward(s, t[1], t[2].offset(slice * half * width), t[0],
                                                           t[3].offset(slice * rows * half),
                                                           t[4].offset(slice * rows * kHeadStatistics), w));
            }
            for (int slice = 0; slice < 2; ++slice) {
              const HeadSliceShape s{rows, width, half, slice * half, vocabulary};
              INTERNEVO_RETURN_IF_ERROR(b.headSliceBackward(
                  s, 2, slice, t[1], t[2].offset(slice * half * width), t[0], t[4], 1.f,
                  slice == 0 ? sum : nullptr, t[3].offset(slice * rows * half),
                  t[static_cast<std::size_t>(5 + slice)], t[7].offset(slice * half * width), w));
            }
            return Status::success();
          }};
}

Case adamw(std::int64_t n, bool master) {
  const Values second = [=] {
    std::vector<double> values = normal(n, 4, 0.1)();
    for (double& value : values) value = value * value;
    return values;
  };
  return {
      sized(master ? "adamw with master weights, norm, sums" : "adamw, norm, sums", {n}),
      {in("gradient", normal(n, 2), Kind::float32), in("addend", normal(n, 6)),
       out("weights", normal(n, 1), Kind::float32),
       out("parameters", zeros(n), master ? Kind::storage : Kind::float32),
       out("first", normal(n, 3, 0.1), Kind::float32), out("second", second, Kind::float32),
       out("added", normal(n, 5)), out("accumulated", normal(n, 7), Kind::float32),
       out("converted", zeros(n))},
      {},
      [=](Backend& b, const Views& t, Workspace, ExactSum* sum) {
        AdamwSettings s;
        s.learningRate = 1e-3f, s.weightDecay = 0.1f, s.step = 3, s.gradientScale = 0.5f;
        const bool two = t[3].type == DataType::bfloat16;  // float32 parameters have no master
        INTERNEVO_RETURN_IF_ERROR(b.adamw(n, s, two ? t[3] : t[2], two ? t[2] : View{}, t[0], t[4], t[5]));
        if (!two) INTERNEVO_RETURN_IF_ERROR(b.convert(n, t[2], t[3]));
        INTERNEVO_RETURN_IF_ERROR(b.squaredNorm(n, t[0], sum));
        INTERNEVO_RETURN_IF_ERROR(b.add(n, t[1], t[6], t[6]));
        INTERNEVO_RETURN_IF_ERROR(b.accumulate(n, t[1], t[7]));
        return b.convert(n, t[0], t[8]);
      }};
}

/// A slice of a matrix that begins in the middle of a row: the values of a run do not depend on who makes them.
Case initialWeights(std::int64_t rows, std::int64_t columns) {
  const std::int64_t first = columns / 3, elements = rows * columns - first;
  Case each{sized("initial weights", {rows, columns}),
            {out("weights", zeros(elements), Kind::float32)},
            {},
            [=](Backend& b, const Views& t, Workspace, ExactSum*) {
              return b.initialNormal({elements, first, columns, 3 * columns, 7, columns},
                                     0x9e3779b97f4a7c15ull, 0.02, t[0]);
            }};
  each.exact = true;
  return each;
}

}  // namespace

std::vector<Case> operatorCases(bool small) {
  std::vector<Case> cases{linear(40, 24, 56),
                          linear(33, 17, 21),
                          norm(37, 96),
                          norm(5, 61),
                          rope(30, 3, 16),
                          attention(2, 70, 2, 1, 64, 0, kAllKinds),
                          attention(1, 130, 2, 2, 128, 0, kAllKinds),
                          attention(1, 100, 2, 1, 64, 33, kAllKinds),
                          attention(2, 50, 2, 1, 24, 0, {}),
                          attention(1, 140, 2, 1, 80, 0, kAllKinds),
                          attention(1, 140, 2, 1, 192, 0, {"cudnn"}),
                          attention(1, 140, 2, 1, 256, 0, {"cudnn"}),
                          attentionPieces(140, 1, 64),
                          swiglu(19, 72),
                          swiglu(3, 31),
                          embedding(50, 40, 13),
                          headLoss(21, 32, 75, 8),
                          headSlices(9, 24, 50),
                          adamw(1000, true),
                          adamw(1003, false),
                          initialWeights(40, 51),
                          bias(37, 96, 112),
                          bias(5, 61, 61),
                          headNorm(30, 3, 64, 320),
                          headNorm(7, 2, 21, 50),
                          scaledRope(30, 3, 32)};
  if (small) return cases;
  for (Case& each : std::vector<Case>{
           linear(1024, 1536, 2048), norm(600, 4096), rope(700, 8, 128),
           attention(1, 1500, 8, 2, 128, 0, kAllKinds), attention(2, 1024, 4, 4, 64, 300, kAllKinds),
           attention(1, 600, 4, 2, 96, 0, kAllKinds), attentionPieces(1200, 4, 128), swiglu(500, 11008),
           embedding(2048, 512, 1000), headLoss(700, 512, 32000, 256), headSlices(300, 512, 8000),
           adamw(1 << 20, true), initialWeights(4096, 4096)}) {
    cases.push_back(std::move(each));
  }
  cases.push_back(bias(3000, 4096, 6144));
  cases.push_back(headNorm(2000, 32, 128, 6144));
  cases.push_back(scaledRope(700, 8, 128));
  return cases;
}

}  // namespace internevo::check
