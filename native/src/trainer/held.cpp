#include "trainer/held.h"

#include <algorithm>

#include "internevo/tensor.h"

namespace internevo::trainer {

namespace {

constexpr std::int64_t kBlock = 64;  // shards are multiples of it

/// Blocks of a unit's optimizer shard that one of its replicas saves.
std::int64_t blocksOfShare(const Layout& layout, int unit, int replicas) {
  return alignUp(layout.optimizerShard(unit) / kBlock, replicas) / replicas;
}

/// Elements [begin, end) of the optimizer shard of a unit, tensor by tensor.
void addParts(const Layout& layout, const ShardPlace& place, int unit, std::int64_t begin, std::int64_t end,
              bool onlySaved, std::vector<HeldPart>* parts) {
  const std::int64_t start =
      place.parameterShard * layout.parameterShard(unit) + place.optimizerShard * layout.optimizerShard(unit);
  for (const LogicalTensor& t : layout.unit(unit).tensors) {
    if (onlySaved && !t.primary) continue;
    const std::int64_t first = std::max(start + begin, t.offset);
    const std::int64_t last = std::min(start + end, t.offset + t.elements());
    if (first >= last) continue;
    const Rectangle rectangle{t.firstRow, t.firstColumn, t.rows, t.columns};
    parts->push_back({t.name, {rectangle, first - t.offset, last - t.offset}, unit, first - start});
  }
}

}  // namespace

std::vector<HeldPart> heldParts(const Layout& layout, const ShardPlace& place) {
  std::vector<HeldPart> parts;
  for (int unit = 0; unit < layout.unitCount(); ++unit) {
    addParts(layout, place, unit, 0, layout.optimizerShard(unit), false, &parts);
  }
  return parts;
}

std::vector<HeldPart> savedParts(const Layout& layout, const ShardPlace& place) {
  std::vector<HeldPart> parts;
  for (int unit = 0; unit < layout.unitCount(); ++unit) {
    const std::int64_t share = kBlock * blocksOfShare(layout, unit, place.replicas);
    const std::int64_t whole = layout.optimizerShard(unit), begin = std::min(whole, place.replica * share);
    addParts(layout, place, unit, begin, std::min(whole, begin + share), true, &parts);
  }
  return parts;
}

std::int64_t savedElementsBound(const Layout& layout, int replicas) {
  std::int64_t elements = 0;
  for (int unit = 0; unit < layout.unitCount(); ++unit)
    elements += kBlock * blocksOfShare(layout, unit, replicas);
  return elements;
}

std::vector<std::pair<std::string, TensorShape>> logicalTensors(const ModelConfig& model) {
  const Layout layout = Layout::whole(model);
  std::vector<std::pair<std::string, TensorShape>> tensors;
  for (const Unit& unit : layout.units()) {
    for (const LogicalTensor& t : unit.tensors)
      tensors.emplace_back(t.name, TensorShape{t.globalRows, t.globalColumns});
  }
  return tensors;
}

}  // namespace internevo::trainer
