#include "trainer/ring_plan.h"

#include <algorithm>
#include <limits>

namespace internevo::trainer {

namespace {

constexpr std::int64_t kFar = 64;  // groups further apart than this are as good as any distance

/// Which group was last in which part of the memory.
class Skyline {
 public:
  explicit Skyline(std::int64_t capacity) : capacity_(capacity), parts_{{0, -1}} {}

  std::int64_t lastIn(std::int64_t offset, std::int64_t size) const {
    std::int64_t last = -1;
    for (std::size_t i = 0; i < parts_.size() && parts_[i].begin < offset + size; ++i) {
      if (endOf(i) > offset) last = std::max(last, parts_[i].group);
    }
    return last;
  }
  void put(std::int64_t group, std::int64_t offset, std::int64_t size) {
    if (size == 0) return;
    const std::int64_t end = offset + size;
    scratch_.clear();
    const auto add = [&](std::int64_t begin, std::int64_t owner) {
      if (scratch_.empty() || scratch_.back().group != owner) scratch_.push_back({begin, owner});
    };
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::int64_t first = parts_[i].begin, last = endOf(i);
      if (first < offset) add(first, parts_[i].group);
      if (first <= offset && offset < last) add(offset, group);
      if (last > end) add(std::max(first, end), parts_[i].group);
    }
    parts_.swap(scratch_);
  }
  /// Beside every border, as far as the size fits.
  void candidates(std::int64_t size, std::vector<std::int64_t>* offsets) const {
    offsets->clear();
    const auto add = [&](std::int64_t offset) {
      if (offset < 0 || offset + size > capacity_) return;
      if (std::find(offsets->begin(), offsets->end(), offset) == offsets->end()) offsets->push_back(offset);
    };
    for (const Part& part : parts_) add(part.begin), add(part.begin - size);
    add(capacity_ - size);
  }

 private:
  struct Part {
    std::int64_t begin, group;
  };
  std::int64_t endOf(std::size_t part) const {
    return part + 1 < parts_.size() ? parts_[part + 1].begin : capacity_;
  }

  std::int64_t capacity_;
  std::vector<Part> parts_, scratch_;
};

/// The nearer the group that must be done with first, the worse, and the worse the larger this one is.
std::int64_t costOf(std::int64_t group, std::int64_t after, std::int64_t size) {
  const std::int64_t distance = after < 0 ? kFar : std::min(kFar, group - after);
  return size * kFar / distance;
}

}  // namespace

std::vector<RingPlace> planRing(const std::vector<std::int64_t>& sizes, std::int64_t capacity) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto count = static_cast<std::int64_t>(sizes.size());
  const auto sizeOf = [&](std::int64_t group) { return sizes[static_cast<std::size_t>(group)]; };
  const std::int64_t largest = sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
  std::vector<RingPlace> places;
  if (capacity < 2 * largest) {  // one group at a time
    for (std::int64_t group = 0; group < count; ++group) places.push_back({0, group - 1});
    return places;
  }
  places.reserve(sizes.size());
  Skyline now(capacity), then(capacity);
  std::vector<std::int64_t> offsets, following;
  for (std::int64_t group = 0; group < count; ++group) {
    const std::int64_t size = sizeOf(group), next = group + 1 < count ? sizeOf(group + 1) : 0;
    std::int64_t best = kMost;
    RingPlace chosen;
    now.candidates(size, &offsets);
    for (const std::int64_t offset : offsets) {
      // The next group must fit beside this one. Both ends of the memory always leave room for it, and this group fits at one of
      // them, as the choice before made sure.
      if (std::max(offset, capacity - offset - size) < next) continue;
      const std::int64_t after = now.lastIn(offset, size);
      if (group > 0 && after == group - 1 && size > 0) continue;
      std::int64_t cost = costOf(group, after, size);
      if (cost >= best) continue;
      if (group + 1 < count) {
        then = now;
        then.put(group, offset, size);
        then.candidates(next, &following);
        std::int64_t least = kMost;
        for (const std::int64_t other : following) {
          const std::int64_t behind = then.lastIn(other, next);
          if (behind < group || next == 0) least = std::min(least, costOf(group + 1, behind, next));
        }
        cost += least;
      }
      if (cost < best) best = cost, chosen = {offset, after};
    }
    now.put(group, chosen.offset, size);
    places.push_back(chosen);
  }
  return places;
}

}  // namespace internevo::trainer
