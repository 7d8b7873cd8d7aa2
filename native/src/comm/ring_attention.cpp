#include "comm/ring_attention.h"

#include <optional>

namespace internevo {

namespace {

constexpr int kKeyTag = 11, kGradientTag = 12;

bool fits(const RingAttentionShape& s, int groupSize) {
  return s.batch > 0 && s.sequence > 0 && s.heads > 0 && s.kvHeads > 0 && s.headSize > 0 &&
         s.heads % s.kvHeads == 0 && s.sequence % (2 * groupSize) == 0 &&
         (s.type == DataType::float32 || s.type == DataType::bfloat16);
}

RingAttentionShape dense(RingAttentionShape s) {
  const auto resolve = [](std::int64_t* stride, std::int64_t width) {
    *stride = *stride == 0 ? width : *stride;
  };
  resolve(&s.queryStride, s.heads * s.headSize), resolve(&s.outputStride, s.heads * s.headSize);
  resolve(&s.keyStride, s.kvHeads * s.headSize), resolve(&s.valueStride, s.kvHeads * s.headSize);
  return s;
}

struct Pieces {
  std::int64_t keys = 0, gradients = 0, wide = 0;
  std::int64_t total() const { return 2 * keys + 3 * gradients + wide; }
};

/// Nothing when the shape does not fit the group.
Pieces piecesOf(const RingAttentionShape& s, int groupSize) {
  if (!fits(s, groupSize)) return {};
  const std::int64_t rows = s.batch * s.sequence / groupSize, keys = rows * 2 * s.kvHeads * s.headSize;
  return {alignUp(bytesPerElement(s.type) * keys, kAlignmentBytes), alignUp(4 * keys, kAlignmentBytes),
          s.type == DataType::float32 ? 0 : alignUp(4 * rows * s.heads * s.headSize, kAlignmentBytes)};
}

}  // namespace

RingPairs ringPairs(int groupSize, int rank, int owner) {
  RingPairs result;
  for (int query = 0; query < 2; ++query) {
    for (int key = 0; key < 2; ++key) {
      const int mine = zigzagChunk(groupSize, rank, query), theirs = zigzagChunk(groupSize, owner, key);
      if (theirs <= mine)
        result.pairs[static_cast<std::size_t>(result.count++)] = {query, key, mine == theirs};
    }
  }
  return result;
}

std::int64_t RingAttention::stagingBytes(const RingAttentionShape& s, int groupSize) {
  return piecesOf(s, groupSize).total();
}

std::int64_t RingAttention::scratchBytes(const RingAttentionShape& s, int groupSize,
                                         const BackendSizes& backend) {
  if (!fits(s, groupSize)) return 0;
  AttentionBlockShape chunk;
  chunk.batch = s.batch, chunk.heads = s.heads, chunk.kvHeads = s.kvHeads, chunk.headSize = s.headSize;
  chunk.window = s.window;
  chunk.sequence = chunk.keySequence = s.sequence / (2 * groupSize);
  return backend.attentionBlockWorkspaceBytes(chunk);
}

RingAttention::RingAttention(Backend& backend, const Communicator& group, const RingAttentionShape& shape,
                             Workspace staging, Workspace scratch, Lane* lane)
    : backend_(backend),
      group_(group),
      shape_(dense(shape)),
      stagingGiven_(staging.data == nullptr ? 0 : staging.bytes),
      scratchGiven_(scratch.data == nullptr ? 0 : scratch.bytes),
      attentionWorkspace_(scratch),
      keyExchange_(group, kKeyTag, piecesOf(shape, group.size()).keys, lane),
      gradientExchange_(group, kGradientTag, piecesOf(shape, group.size()).gradients, lane) {
  if (!fits(shape_, group.size())) return;
  rows_ = shape_.sequence / group.size(), chunk_ = rows_ / 2;
  queryWidth_ = shape_.heads * shape_.headSize, keyWidth_ = shape_.kvHeads * shape_.headSize;
  keyElements_ = shape_.batch * rows_ * keyWidth_;
  const Pieces pieces = piecesOf(shape_, group.size());
  auto* at = static_cast<std::byte*>(staging.data);
  if (stagingGiven_ < pieces.total()) return;
  const auto take = [&at](std::int64_t bytes) {
    std::byte* const result = at;
    at += bytes;
    return result;
  };
  for (std::byte*& buffer : buffers_) buffer = take(pieces.keys);
  for (float*& gradient : gradients_) gradient = reinterpret_cast<float*>(take(pieces.gradients));
  wide_ = reinterpret_cast<float*>(take(pieces.wide));
}

Status RingAttention::check(ConstView query, ConstView firstKeys) const {
  const auto fail = [](const std::string& what) -> Status {
    return {StatusCode::badConfig, "RingAttention: " + what};
  };
  if (shape_.sequence <= 0 || shape_.sequence % (2 * group_.size()) != 0) {
    return fail("sequence is " + std::to_string(shape_.sequence) + "; must be a positive multiple of " +
                std::to_string(2 * group_.size()) + ", two chunks for each rank");
  }
  if (!fits(shape_, group_.size())) {
    return fail(
        "batch, heads, kvHeads and headSize must be positive, heads a multiple of kvHeads, and the type "
        "float32 or bfloat16");
  }
  const std::int64_t staging = stagingBytes(shape_, group_.size()),
                     scratch = scratchBytes(shape_, group_.size(), backend_);
  if (stagingGiven_ < staging || scratchGiven_ < scratch) {
    return fail("staging and scratch have " + std::to_string(stagingGiven_) + " and " +
                std::to_string(scratchGiven_) + " bytes; they need " + std::to_string(staging) + " and " +
                std::to_string(scratch));
  }
  if (query.type != shape_.type) return fail("q must have the type of the shape");
  if (!firstKeys.empty() && firstKeys.type != DataType::int32) return fail("firstKeys must be int32");
  return Status::success();
}

/// The rank's own keys, then its values, dense, in the buffer of step 0.
Status RingAttention::packKeysAndValues(ConstView k, ConstView v) {
  const std::int64_t width = bytesPerElement(shape_.type), row = keyWidth_ * width,
                     rows = shape_.batch * rows_;
  MemorySpace& memory = backend_.memory();
  INTERNEVO_RETURN_IF_ERROR(memory.copyRows(buffers_[0], row, k.data, shape_.keyStride * width, row, rows));
  return memory.copyRows(buffers_[0] + keyElements_ * width, row, v.data, shape_.valueStride * width, row,
                         rows);
}

void RingAttention::enter(std::optional<Activity::Scope>* scope) {
  if (activity_ == nullptr) return;
  scope->emplace(*activity_, ActivityLane::exposed, "ring exchange", -1,
                 microBatch_ == nullptr ? -1 : *microBatch_, true, counters_);
}

Status RingAttention::begin(RingExchange& exchange, const void* out, void* in, std::int64_t bytes) {
  std::optional<Activity::Scope> scope;
  if (exchange.travelsAtBegin()) enter(&scope);
  const std::int64_t start = steadyNanoseconds();
  const Status status = exchange.begin(out, in, bytes);
  exchangeSeconds_ += static_cast<double>(steadyNanoseconds() - start) * 1e-9;
  return status;
}

Status RingAttention::finish(RingExchange& exchange) {
  std::optional<Activity::Scope> scope;
  if (!exchange.travelsAtBegin()) enter(&scope);
  const std::int64_t start = steadyNanoseconds();
  const Status status = exchange.finish();
  exchangeSeconds_ += static_cast<double>(steadyNanoseconds() - start) * 1e-9;
  return status;
}

AttentionBlockShape RingAttention::pairShape(const RingPair& pair, int owner, ConstView firstKeys) const {
  AttentionBlockShape s;
  s.batch = shape_.batch, s.heads = shape_.heads, s.kvHeads = shape_.kvHeads, s.headSize = shape_.headSize;
  s.sequence = s.keySequence = chunk_, s.window = shape_.window;
  s.queryStride = shape_.queryStride, s.outputStride = shape_.outputStride;
  s.queryBatchRows = s.keyBatchRows = rows_;
  s.queryPosition = zigzagChunk(group_.size(), group_.index(), pair.query) * chunk_;
  s.keyPosition = zigzagChunk(group_.size(), owner, pair.key) * chunk_;
  if (!firstKeys.empty()) s.firstKeys = firstKeys.offset(pair.query * chunk_);
  return s;
}

// ---- forward -------------------------------------------------------------------------------------------------------

Status RingAttention::forwardPairs(int step, ConstView q, ConstView firstKeys, View o32,
                                   std::int64_t outputStride, View logSumExp) {
  const RingPairs work = ringPairs(group_.size(), group_.index(), owner(step));
  bool begun[2] = {step > 0, step > 0};  // in step 0 every query meets its own keys
  for (int i = 0; i < work.count; ++i) {
    const RingPair& pair = work.pairs[static_cast<std::size_t>(i)];
    AttentionBlockShape s = pairShape(pair, owner(step), firstKeys);
    s.outputStride = outputStride;
    const std::int64_t query = pair.query * chunk_, key = pair.key * chunk_ * keyWidth_;
    INTERNEVO_RETURN_IF_ERROR(backend_.attentionBlockForward(
        s, q.offset(query * s.queryStride), keysOf(step).offset(key), keysOf(step).offset(keyElements_ + key),
        begun[pair.query], o32.offset(query * outputStride), logSumExp.offset(query), attentionWorkspace_));
    begun[pair.query] = true;
    computedHalves_ += pair.diagonal ? 1 : 2;
  }
  return Status::success();
}

Status RingAttention::forward(ConstView q, ConstView k, ConstView v, ConstView firstKeys, View o,
                              View logSumExp) {
  INTERNEVO_RETURN_IF_ERROR(check(q, firstKeys));
  const bool wide = shape_.type != DataType::float32;
  const View o32 = wide ? View{wide_, DataType::float32} : o;
  const std::int64_t stride = wide ? queryWidth_ : shape_.outputStride;
  INTERNEVO_RETURN_IF_ERROR(packKeysAndValues(k, v));
  for (int step = 0; step < group_.size(); ++step) {
    const bool more = step + 1 < group_.size();
    if (more) {
      INTERNEVO_RETURN_IF_ERROR(begin(keyExchange_, buffers_[step % 2], buffers_[(step + 1) % 2],
                                      2 * keyElements_ * bytesPerElement(shape_.type)));
    }
    const Status computed = forwardPairs(step, q, firstKeys, o32, stride, logSumExp);
    if (more) INTERNEVO_RETURN_IF_ERROR(finish(keyExchange_));
    INTERNEVO_RETURN_IF_ERROR(computed);
  }
  if (!wide) return Status::success();
  return backend_.convertRows(shape_.batch * rows_, queryWidth_, o32, queryWidth_, o, shape_.outputStride);
}

// ---- backward ------------------------------------------------------------------------------------------------------

Status RingAttention::backwardPairs(int step, ConstView q, ConstView o, ConstView logSumExp, ConstView gO,
                                    ConstView firstKeys, View gQ32, std::int64_t gradientStride) {
  float* const sums = gradients_[step % 2];
  INTERNEVO_RETURN_IF_ERROR(backend_.memory().zero(sums, 2 * keyElements_ * 4));
  const RingPairs work = ringPairs(group_.size(), group_.index(), owner(step));
  for (int i = 0; i < work.count; ++i) {
    const RingPair& pair = work.pairs[static_cast<std::size_t>(i)];
    AttentionBlockShape s = pairShape(pair, owner(step), firstKeys);
    s.queryGradientStride = gradientStride;
    const std::int64_t query = pair.query * chunk_, key = pair.key * chunk_ * keyWidth_;
    INTERNEVO_RETURN_IF_ERROR(backend_.attentionBlockBackward(
        s, q.offset(query * s.queryStride), keysOf(step).offset(key), keysOf(step).offset(keyElements_ + key),
        o.offset(query * s.outputStride), logSumExp.offset(query), gO.offset(query * s.outputStride),
        gQ32.offset(query * gradientStride), {sums + key, DataType::float32},
        {sums + keyElements_ + key, DataType::float32}, attentionWorkspace_));
    computedHalves_ += pair.diagonal ? 1 : 2;
  }
  return Status::success();
}

Status RingAttention::backward(ConstView q, ConstView k, ConstView v, ConstView o, ConstView logSumExp,
                               ConstView gO, ConstView firstKeys, View gQ, View gK, View gV) {
  INTERNEVO_RETURN_IF_ERROR(check(q, firstKeys));
  const int size = group_.size();
  const std::int64_t rows = shape_.batch * rows_, gradientBytes = 2 * keyElements_ * 4;
  const bool wide = shape_.type != DataType::float32;
  const View gQ32 = wide ? View{wide_, DataType::float32} : gQ;
  const std::int64_t stride = wide ? queryWidth_ : shape_.queryStride;
  INTERNEVO_RETURN_IF_ERROR(backend_.memory().zeroRows(gQ32.data, 4 * stride, 4 * queryWidth_, rows));
  float* const arriving = gradients_[2];
  INTERNEVO_RETURN_IF_ERROR(packKeysAndValues(k, v));
  for (int step = 0; step < size; ++step) {
    const bool more = step + 1 < size;
    if (more) {
      INTERNEVO_RETURN_IF_ERROR(begin(keyExchange_, buffers_[step % 2], buffers_[(step + 1) % 2],
                                      2 * keyElements_ * bytesPerElement(shape_.type)));
    }
    // The sums of the block that was here one step ago follow it; those of the block that is here now arrive.
    if (step > 0)
      INTERNEVO_RETURN_IF_ERROR(
          begin(gradientExchange_, gradients_[(step - 1) % 2], arriving, gradientBytes));
    const Status computed = backwardPairs(step, q, o, logSumExp, gO, firstKeys, gQ32, stride);
    if (more) INTERNEVO_RETURN_IF_ERROR(finish(keyExchange_));
    if (step > 0) INTERNEVO_RETURN_IF_ERROR(finish(gradientExchange_));
    INTERNEVO_RETURN_IF_ERROR(computed);
    if (step > 0) {
      INTERNEVO_RETURN_IF_ERROR(backend_.accumulate(2 * keyElements_, {arriving, DataType::float32},
                                                    {gradients_[step % 2], DataType::float32}));
    }
  }
  const float* own = gradients_[(size - 1) % 2];
  if (size > 1) {  // one hop more and every block is at home
    INTERNEVO_RETURN_IF_ERROR(begin(gradientExchange_, own, arriving, gradientBytes));
    INTERNEVO_RETURN_IF_ERROR(finish(gradientExchange_));
    own = arriving;
  }
  const ConstView sums{own, DataType::float32};
  INTERNEVO_RETURN_IF_ERROR(backend_.convertRows(rows, keyWidth_, sums, keyWidth_, gK, shape_.keyStride));
  INTERNEVO_RETURN_IF_ERROR(
      backend_.convertRows(rows, keyWidth_, sums.offset(keyElements_), keyWidth_, gV, shape_.valueStride));
  return wide ? backend_.convertRows(rows, queryWidth_, gQ32, queryWidth_, gQ, shape_.queryStride)
              : Status::success();
}

}  // namespace internevo
