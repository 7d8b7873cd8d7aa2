#include "emulator/launch_order.h"

#include <algorithm>
#include <cstdio>

namespace internevo::cuda::model {

namespace {

using Kind = LaunchStep::Kind;

int streamsOf(const std::vector<LaunchStep>& steps) {
  int streams = 0;
  for (const LaunchStep& step : steps) streams = std::max(streams, step.stream + 1);
  return streams;
}

/// What is between neighbouring ends of ranges is touched as a whole: cells of memory that are numbered.
class Cells {
 public:
  explicit Cells(const std::vector<LaunchStep>& steps) {
    for (const LaunchStep& step : steps) {
      for (const auto* ranges : {&step.reads, &step.writes}) {
        for (const ByteRange& range : *ranges) edges_.push_back(range.begin), edges_.push_back(range.end);
      }
    }
    std::sort(edges_.begin(), edges_.end());
    edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  }
  std::size_t count() const { return edges_.size(); }
  std::uintptr_t begin(std::size_t cell) const { return edges_[cell]; }
  std::size_t at(std::uintptr_t edge) const {
    return static_cast<std::size_t>(std::lower_bound(edges_.begin(), edges_.end(), edge) - edges_.begin());
  }

 private:
  std::vector<std::uintptr_t> edges_;
};

/// Who wrote each cell last, and who has read it on each stream since.
class Users {
 public:
  Users(std::size_t cells, int streams)
      : streams_(static_cast<std::size_t>(streams)), writer_(cells, -1), readers_(cells * streams_, -1) {}

  template <typename Found>
  void read(std::size_t cell, std::int64_t step, int stream, const Found& found) {
    if (writer_[cell] >= 0) found(writer_[cell]);
    readers_[cell * streams_ + static_cast<std::size_t>(stream)] = step;
  }
  template <typename Found>
  void write(std::size_t cell, std::int64_t step, const Found& found) {
    if (writer_[cell] >= 0) found(writer_[cell]);
    for (std::size_t i = cell * streams_; i < (cell + 1) * streams_; ++i) {
      if (readers_[i] >= 0) found(readers_[i]);
      readers_[i] = -1;
    }
    writer_[cell] = step;
  }

 private:
  const std::size_t streams_;
  std::vector<std::int64_t> writer_, readers_;
};

}  // namespace

std::vector<Dependency> dependenciesOf(const std::vector<LaunchStep>& steps) {
  const Cells cells(steps);
  Users users(cells.count(), streamsOf(steps));
  std::vector<Dependency> result;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const LaunchStep& step = steps[i];
    if (step.kind != Kind::work) continue;
    std::vector<Dependency> own;
    const auto each = [&](const std::vector<ByteRange>& ranges, const auto& use) {
      for (const ByteRange& range : ranges) {
        const std::size_t end = cells.at(range.end);
        for (std::size_t cell = cells.at(range.begin); cell < end; ++cell) {
          use(cell, [&](std::int64_t before) {
            if (steps[static_cast<std::size_t>(before)].stream == step.stream) return;
            const auto known =
                std::find_if(own.begin(), own.end(), [&](const Dependency& d) { return d.before == before; });
            if (known == own.end()) own.push_back({before, static_cast<std::int64_t>(i), cells.begin(cell)});
          });
        }
      }
    };
    const auto number = static_cast<std::int64_t>(i);
    each(step.reads,
         [&](std::size_t cell, const auto& found) { users.read(cell, number, step.stream, found); });
    each(step.writes, [&](std::size_t cell, const auto& found) { users.write(cell, number, found); });
    result.insert(result.end(), own.begin(), own.end());
  }
  return result;
}

std::vector<Dependency> uncovered(const std::vector<LaunchStep>& steps,
                                  const std::vector<Dependency>& dependencies, std::int64_t without) {
  // A clock says of each stream up to which step all of its work is known to be done.
  const auto streams = static_cast<std::size_t>(streamsOf(steps));
  const auto join = [&](std::int64_t* into, const std::int64_t* other) {
    for (std::size_t i = 0; i < streams; ++i) into[i] = std::max(into[i], other[i]);
  };
  std::vector<std::int64_t> now(streams * streams, -1), recorded(steps.size() * streams, -1),
      host(streams, -1);
  std::vector<Dependency> result;
  std::size_t next = 0;  // dependencies are in the order of what comes after
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const LaunchStep& step = steps[i];
    std::int64_t* const clock = &now[static_cast<std::size_t>(step.stream) * streams];
    if (step.kind == Kind::hostWait) {
      join(host.data(), clock);
      continue;
    }
    join(clock, host.data());
    if (step.kind == Kind::record) join(&recorded[i * streams], clock);
    if (step.kind == Kind::wait && step.recorded >= 0 && static_cast<std::int64_t>(i) != without) {
      join(clock, &recorded[static_cast<std::size_t>(step.recorded) * streams]);
    }
    for (; next < dependencies.size() && dependencies[next].after == static_cast<std::int64_t>(i); ++next) {
      const Dependency& d = dependencies[next];
      if (clock[static_cast<std::size_t>(steps[static_cast<std::size_t>(d.before)].stream)] < d.before)
        result.push_back(d);
    }
    if (step.kind == Kind::work) clock[static_cast<std::size_t>(step.stream)] = static_cast<std::int64_t>(i);
  }
  return result;
}

std::string describe(const std::vector<LaunchStep>& steps, const Dependency& dependency) {
  const auto name = [&](std::int64_t number) {
    const LaunchStep& step = steps[static_cast<std::size_t>(number)];
    return step.name + " on stream " + std::to_string(step.stream) + " (step " + std::to_string(number) + ")";
  };
  char address[32];
  std::snprintf(address, sizeof address, "%#llx", static_cast<unsigned long long>(dependency.at));
  return name(dependency.before) + " and " + name(dependency.after) + " touch the byte at " + address +
         ", and no event is between them";
}

}  // namespace internevo::cuda::model
