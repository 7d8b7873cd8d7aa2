// One prepared call for every module of the decoder, with the operators and buffers that training uses.
#include "probe/points.h"

namespace internevo::probe {

namespace {

/// Products by what a run would choose, in memory of their own: its operands, its scratch memory and some room.
void chooseProducts(const ProductUses& uses, std::int64_t operandBytes, Backend& backend, Memory& memory,
                    Work* work) {
  if (backend.memory().hostReads()) return;  // the host's own products have one way
  constexpr std::int64_t kRoom = std::int64_t{1} << 20;
  const Workspace trial = memory.workspace(operandBytes + backend.linearWorkspaceBytes() + kRoom);
  work->choose = [=, &backend](const LargestOfRanks& largest) {
    ProductRequest request;
    request.uses = uses, request.memory = trial;
    ProductChoices chosen;
    return backend.chooseProducts(request, largest, &chosen);
  };
}

void prepareLinear(const ModulePoint& p, Backend& backend, Memory& memory, Work* work) {
  const LinearShape shape{p.rows, p.inputs, p.outputs};
  const View x = memory.take(p.rows * p.inputs, p.precision),
             w = memory.take(p.outputs * p.inputs, p.precision);
  const View y = memory.take(p.rows * p.outputs, p.precision);
  const Workspace scratch = memory.workspace(backend.linearWorkspaceBytes());
  const double once =
      2.0 * static_cast<double>(p.rows) * static_cast<double>(p.inputs) * static_cast<double>(p.outputs);
  chooseProducts({{{p.rows, p.inputs, p.outputs, p.precision, p.pass == "forward", p.pass != "forward"}}, {}},
                 4 * (p.rows * p.inputs + p.outputs * p.inputs + p.rows * p.outputs), backend, memory, work);
  if (p.pass == "forward") {
    work->flops = once;
    work->run = [=, &backend] { return backend.linearForward(shape, x, w, y, scratch); };
    return;
  }
  const View gX = memory.take(p.rows * p.inputs, p.precision);
  const View gW = memory.take(p.outputs * p.inputs, DataType::float32);
  work->flops = 2 * once;
  work->run = [=, &backend] {
    INTERNEVO_RETURN_IF_ERROR(backend.linearGradInput(shape, y, w, gX, false, scratch));
    return backend.linearGradWeight(shape, x, y, gW, scratch);
  };
}

void prepareAttention(const ModulePoint& p, Backend& backend, Memory& memory, Work* work) {
  const AttentionShape shape{p.batch, p.sequence, p.heads, p.kvHeads, p.headSize};
  const std::int64_t rows = p.batch * p.sequence, wide = rows * p.heads * p.headSize;
  const std::int64_t narrow = rows * p.kvHeads * p.headSize;
  const View q = memory.take(wide, p.precision), k = memory.take(narrow, p.precision);
  const View v = memory.take(narrow, p.precision), o = memory.take(wide, p.precision);
  const View logSumExp = memory.take(rows * p.heads, DataType::float32);
  const Workspace scratch = memory.workspace(backend.attentionWorkspaceBytes(shape));
  const double pairs = static_cast<double>(p.sequence) * static_cast<double>(p.sequence + 1) / 2;
  const double once = 4.0 * static_cast<double>(p.batch * p.heads * p.headSize) * pairs;
  const auto forward = [=, &backend] {
    return backend.attentionForward(shape, q, k, v, o, logSumExp, scratch);
  };
  const auto chooseBy = [&](const AttentionOperands& operands) {
    work->choose = [=, &backend](const LargestOfRanks& largest) {
      return backend.prepareAttention(shape, operands, largest);
    };
  };
  if (p.pass == "forward") {
    work->flops = once;
    work->run = forward;
    return chooseBy({q, k, v, o, logSumExp, {}, {}, {}, {}, scratch});
  }
  const View gO = memory.take(wide, p.precision), gQ = memory.take(wide, p.precision);
  const View gK = memory.take(narrow, p.precision), gV = memory.take(narrow, p.precision);
  chooseBy({q, k, v, o, logSumExp, gO, gQ, gK, gV, scratch});
  work->flops = 2.5 * once;
  work->run = [=, &backend, ready = false]() mutable {
    if (!ready)
      INTERNEVO_RETURN_IF_ERROR(forward());  // backward needs its log-sum-exp; the first call is not timed
    ready = true;
    return backend.attentionBackward(shape, q, k, v, o, logSumExp, gO, gQ, gK, gV, scratch);
  };
}

void prepareNorm(const ModulePoint& p, Backend& backend, Memory& memory, Work* work) {
  const NormShape shape{p.rows, p.width};
  const std::int64_t n = p.rows * p.width;
  const View h = memory.take(n, p.precision), gain = memory.take(p.width, p.precision);
  const View y = memory.take(n, p.precision), inverseRms = memory.take(p.rows, DataType::float32);
  if (p.pass == "forward") {
    work->run = [=, &backend] {
      return backend.rmsNormForward(shape, h, {}, gain, 1e-5f, {}, y, inverseRms);
    };
    return;
  }
  const View gSum = memory.take(n, p.precision), gGain = memory.take(p.width, DataType::float32);
  const View gH = memory.take(n, p.precision);
  const Workspace scratch = memory.workspace(backend.normWorkspaceBytes(shape));
  work->run = [=, &backend] {
    return backend.rmsNormBackward(shape, h, gain, inverseRms, y, gSum, gH, gGain, scratch);
  };
}

void prepareSwiglu(const ModulePoint& p, Backend& backend, Memory& memory, Work* work) {
  // Gate and up lie beside each other in one buffer, as in training.
  const SwigluShape shape{p.rows, p.width, 2 * p.width, 0};
  const View both = memory.take(2 * p.rows * p.width, p.precision),
             y = memory.take(p.rows * p.width, p.precision);
  if (p.pass == "forward") {
    work->run = [=, &backend] { return backend.swigluForward(shape, both, both.offset(p.width), y); };
    return;
  }
  const View gradient = memory.take(2 * p.rows * p.width, p.precision);
  work->run = [=, &backend] {
    return backend.swigluBackward(shape, both, both.offset(p.width), y, gradient, gradient.offset(p.width));
  };
}

void prepareAdd(const ModulePoint& p, Backend& backend, Memory& memory, Work* work) {
  const std::int64_t n = p.rows * p.width;
  const View a = memory.take(n, p.precision), b = memory.take(n, p.precision),
             y = memory.take(n, p.precision);
  work->run = [=, &backend] {
    return backend.add(n, a, b, y);
  };  // backward adds two gradients: the same call
}

void prepareRope(const ModulePoint& p, Backend& backend, Memory& memory, Work* work) {
  const RopeShape shape{p.rows, p.heads, p.headSize, 0, p.rows, 0};
  const View x = memory.take(p.rows * p.heads * p.headSize, p.precision);
  const View cosines = memory.take(p.rows * p.headSize / 2, DataType::float32);
  const View sines = memory.take(p.rows * p.headSize / 2, DataType::float32);
  const bool forward = p.pass == "forward";
  work->run = [=, &backend, ready = false]() mutable {
    if (!ready) INTERNEVO_RETURN_IF_ERROR(backend.ropeTable(p.rows, p.headSize, 10000.0, cosines, sines));
    ready = true;
    return forward ? backend.ropeForward(shape, cosines, sines, x)
                   : backend.ropeBackward(shape, cosines, sines, x);
  };
}

/// Token ids spread over the vocabulary.
View takeTokens(std::int64_t rows, std::int64_t vocabulary, Memory& memory) {
  const View tokens = memory.take(rows, DataType::int32);
  if (tokens.empty()) return tokens;
  std::vector<std::int32_t> values(static_cast<std::size_t>(rows));
  std::uint32_t state = 99;
  for (std::int32_t& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<std::int32_t>((state >> 4) % vocabulary);
  }
  memory.set(tokens, values.data(), rows);
  return tokens;
}

void prepareEmbedding(const ModulePoint& p, Backend& backend, Memory& memory, Work* work) {
  const EmbeddingShape shape{p.rows, p.width, p.vocabulary};
  const View tokens = takeTokens(p.rows, p.vocabulary, memory),
             y = memory.take(p.rows * p.width, p.precision);
  if (p.pass == "forward") {
    const View table = memory.take(p.vocabulary * p.width, p.precision);
    work->run = [=, &backend] { return backend.embeddingForward(shape, tokens, table, y); };
    return;
  }
  const View gTable = memory.take(p.vocabulary * p.width, DataType::float32);
  work->run = [=, &backend] { return backend.embeddingBackward(shape, tokens, y, gTable); };
}

void prepareHeadLoss(const ModulePoint& p, Backend& backend, Memory& memory, Work* work) {
  const HeadLossShape shape{p.rows, p.width, p.vocabulary, backend.lossChunkRows()};
  const View tokens = takeTokens(p.rows, p.vocabulary, memory),
             x = memory.take(p.rows * p.width, p.precision);
  const View w = memory.take(p.vocabulary * p.width, p.precision),
             gX = memory.take(p.rows * p.width, p.precision);
  const View gW = memory.take(p.vocabulary * p.width, DataType::float32);
  const Workspace scratch = memory.workspace(backend.headLossWorkspaceBytes(shape));
  const float scale = 1.f / static_cast<float>(p.rows);
  work->flops =
      6.0 * static_cast<double>(p.rows) * static_cast<double>(p.width) * static_cast<double>(p.vocabulary);
  chooseProducts({{}, {{p.rows, p.width, p.vocabulary, shape.chunkRows, p.precision}}},
                 4 * (shape.chunkRows * (p.width + p.vocabulary) + p.vocabulary * p.width), backend, memory,
                 work);
  const auto loss = std::make_shared<ExactSum>();  // a device adds to it when it settles
  work->run = [=, &backend] {
    return backend.headLoss(shape, x, w, tokens, scale, loss.get(), gX, gW, scratch);
  };
}

void prepareUpdate(const ModulePoint& p, Backend& backend, Memory& memory, Work* work) {
  const std::int64_t n = p.elements;
  const bool narrow = p.precision == DataType::bfloat16;
  const View gradient = memory.take(n, DataType::float32);
  if (p.module == "squared-norm") {
    const auto sum = std::make_shared<ExactSum>();
    work->run = [=, &backend] { return backend.squaredNorm(n, gradient, sum.get()); };
    return;
  }
  if (p.module == "accumulate") {
    const View source = memory.take(n, p.precision);
    work->run = [=, &backend] { return backend.accumulate(n, source, gradient); };
    return;
  }
  const View weights = memory.take(n, p.precision),
             master = narrow ? memory.take(n, DataType::float32) : View{};
  const View m = memory.take(n, DataType::float32), v = memory.take(n, DataType::float32);
  memory.zero(v, n);  // no square is negative
  AdamwSettings settings;
  settings.learningRate = 1e-4f;
  work->run = [=, &backend] { return backend.adamw(n, settings, weights, master, gradient, m, v); };
}

}  // namespace

Status prepareModule(const ModulePoint& p, Backend& backend, Memory& memory, Work* work) {
  if (p.module == "linear") prepareLinear(p, backend, memory, work);
  if (p.module == "attention") prepareAttention(p, backend, memory, work);
  if (p.module == "rmsnorm") prepareNorm(p, backend, memory, work);
  if (p.module == "swiglu") prepareSwiglu(p, backend, memory, work);
  if (p.module == "residual-add") prepareAdd(p, backend, memory, work);
  if (p.module == "rope") prepareRope(p, backend, memory, work);
  if (p.module == "embedding") prepareEmbedding(p, backend, memory, work);
  if (p.module == "head-loss") prepareHeadLoss(p, backend, memory, work);
  if (p.pass == "update") prepareUpdate(p, backend, memory, work);
  if (!work->run) return {StatusCode::internal, "module " + p.module + " has no call"};
  return memory.status();
}

}  // namespace internevo::probe
