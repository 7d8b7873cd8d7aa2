// Layout moves of Ulysses sequence parallelism: pack by destination, one all-to-all, unpack by source.

#include "comm/internal.h"

namespace internevo {

namespace {

struct Move {
  std::int64_t batch, part;  // part: tokens of a sequence on one rank
  std::int64_t heads, headSize, localHeads;
  std::int64_t sequenceSplitStride, headSplitStride;
  int size;
  std::int64_t width;  // bytes per element

  std::int64_t rowElements() const { return localHeads * headSize; }
  std::int64_t blockElements() const { return batch * part * rowElements(); }
  /// First of the heads that index `rank` holds.
  std::int64_t firstHead(int rank) const { return heads >= size ? rank * localHeads : rank * heads / size; }
  std::int64_t headSplitRow(std::int64_t b, std::int64_t rank, std::int64_t token) const {
    return (b * size + rank) * part + token;
  }
};

std::int64_t bufferBytes(const Move& m) {
  return alignUp(m.size * m.blockElements() * m.width, kAlignmentBytes);
}

Status prepare(const char* call, const UlyssesShape& s, int size, DataType type, Move* move) {
  const auto fail = [&](const std::string& what) -> Status {
    return {StatusCode::badConfig, std::string(call) + ": " + what};
  };
  if (s.batch <= 0 || s.sequence <= 0 || s.heads <= 0 || s.headSize <= 0) {
    return fail("batch, sequence, heads and headSize must be positive");
  }
  if (type != DataType::float32 && type != DataType::bfloat16) return fail("needs float32 or bfloat16");
  if (s.sequence % size != 0) {
    return fail("sequence " + std::to_string(s.sequence) + " does not divide by the group of " +
                std::to_string(size));
  }
  if (ulyssesLocalHeads(s.heads, size) == 0) {
    return fail("heads " + std::to_string(s.heads) + " and the group of " + std::to_string(size) +
                " do not divide one another");
  }
  *move = {s.batch,
           s.sequence / size,
           s.heads,
           s.headSize,
           ulyssesLocalHeads(s.heads, size),
           s.sequenceSplitStride == 0 ? s.heads * s.headSize : s.sequenceSplitStride,
           s.headSplitStride,
           size,
           bytesPerElement(type)};
  if (move->headSplitStride == 0) move->headSplitStride = move->rowElements();
  if (move->sequenceSplitStride < s.heads * s.headSize || move->headSplitStride < move->rowElements()) {
    return fail("a stride is shorter than its row");
  }
  return Status::success();
}

/// Copies rows of rowElements between the head-split tensor and blocks ordered by source rank.
Status copyHeadSplit(MemorySpace& memory, const Move& m, std::byte* tensor, std::byte* blocks,
                     bool intoTensor) {
  const std::int64_t row = m.rowElements() * m.width, stride = m.headSplitStride * m.width;
  for (std::int64_t rank = 0; rank < m.size; ++rank) {
    for (std::int64_t b = 0; b < m.batch; ++b, blocks += m.part * row) {
      std::byte* const place = tensor + m.headSplitRow(b, rank, 0) * stride;
      INTERNEVO_RETURN_IF_ERROR(intoTensor ? memory.copyRows(place, stride, blocks, row, row, m.part)
                                           : memory.copyRows(blocks, row, place, stride, row, m.part));
    }
  }
  return Status::success();
}

Status checkCall(const char* call, ConstView source, View target, const Move& m, const Workspace& workspace) {
  if (source.empty() || target.empty() || source.type != target.type) {
    return {StatusCode::badConfig, std::string(call) + ": source and target must be present and of one type"};
  }
  if (workspace.data == nullptr || workspace.bytes < 2 * bufferBytes(m)) {
    return {StatusCode::badConfig, std::string(call) + ": workspace has " + std::to_string(workspace.bytes) +
                                       " bytes; needs " + std::to_string(2 * bufferBytes(m))};
  }
  return Status::success();
}

/// target[batch·part, heads, headSize] = for every head the tree sum over the ranks that hold it.
Status sumReplicas(const Communicator& group, const Move& m, DataType type, const std::byte* blocks,
                   std::byte* target) {
  const std::int64_t row = m.rowElements() * m.width, rows = m.batch * m.part,
                     stride = m.sequenceSplitStride * m.width;
  const int replicas = m.heads >= m.size ? 1 : static_cast<int>(m.size / m.heads);
  for (int rank = 0; rank < m.size; rank += replicas) {
    std::byte* const place = target + m.firstHead(rank) * m.headSize * m.width;
    const std::byte* const from = blocks + rank * m.blockElements() * m.width;
    if (replicas == 1) {
      INTERNEVO_RETURN_IF_ERROR(group.memory().copyRows(place, stride, from, row, row, rows));
      continue;
    }
    if (group.device() != nullptr) {
      INTERNEVO_RETURN_IF_ERROR(group.device()->sumCopies({from, type}, m.blockElements(), replicas, rows,
                                                          m.rowElements(), {place, type},
                                                          m.sequenceSplitStride));
      continue;
    }
    const void* inputs[256];
    for (std::int64_t r = 0; r < rows; ++r) {
      for (int i = 0; i < replicas; ++i) inputs[i] = from + i * m.blockElements() * m.width + r * row;
      reduceTree(type, ReduceOperation::sum, inputs, replicas, 0, m.rowElements(), place + r * stride);
    }
  }
  return Status::success();
}

}  // namespace

std::int64_t ulyssesLocalHeads(std::int64_t heads, int groupSize) {
  if (heads >= groupSize) return heads % groupSize == 0 ? heads / groupSize : 0;
  return heads > 0 && groupSize % heads == 0 && groupSize / heads <= 256 ? 1 : 0;
}

std::int64_t ulyssesWorkspaceBytes(const UlyssesShape& s, int groupSize, DataType type) {
  Move move{};
  return prepare("ulysses", s, groupSize, type, &move).ok() ? 2 * bufferBytes(move) : 0;
}

Status ulyssesToHeads(const Communicator& group, const UlyssesShape& shape, ConstView source, View target,
                      Workspace workspace) {
  Move m{};
  INTERNEVO_RETURN_IF_ERROR(prepare("ulyssesToHeads", shape, group.size(), source.type, &m));
  INTERNEVO_RETURN_IF_ERROR(checkCall("ulyssesToHeads", source, target, m, workspace));
  auto* const outgoing = static_cast<std::byte*>(workspace.data);
  std::byte* const incoming = outgoing + bufferBytes(m);
  const std::int64_t row = m.rowElements() * m.width;
  const std::int64_t rows = m.batch * m.part;
  std::byte* packed = outgoing;
  for (int rank = 0; rank < m.size; ++rank, packed += rows * row) {
    INTERNEVO_RETURN_IF_ERROR(group.memory().copyRows(packed, row,
                                                      source.offset(m.firstHead(rank) * m.headSize).data,
                                                      m.sequenceSplitStride * m.width, row, rows));
  }
  INTERNEVO_RETURN_IF_ERROR(
      group.allToAll({outgoing, source.type}, {incoming, source.type}, m.blockElements()));
  return copyHeadSplit(group.memory(), m, target.as<std::byte>(), incoming, true);
}

Status ulyssesToSequence(const Communicator& group, const UlyssesShape& shape, ConstView source, View target,
                         Workspace workspace) {
  Move m{};
  INTERNEVO_RETURN_IF_ERROR(prepare("ulyssesToSequence", shape, group.size(), source.type, &m));
  INTERNEVO_RETURN_IF_ERROR(checkCall("ulyssesToSequence", source, target, m, workspace));
  auto* const outgoing = static_cast<std::byte*>(workspace.data);
  std::byte* const incoming = outgoing + bufferBytes(m);
  INTERNEVO_RETURN_IF_ERROR(
      copyHeadSplit(group.memory(), m, const_cast<std::byte*>(source.as<std::byte>()), outgoing, false));
  INTERNEVO_RETURN_IF_ERROR(
      group.allToAll({outgoing, source.type}, {incoming, source.type}, m.blockElements()));
  return sumReplicas(group, m, source.type, incoming, target.as<std::byte>());
}

}  // namespace internevo
