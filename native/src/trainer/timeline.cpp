#include "trainer/timeline.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

/// An event as it travels: names are literals of one program, but their addresses differ between processes.
struct WireEvent {
  char name[48];
  std::int32_t lane, exposed, unit, microBatch;
  std::int64_t start, end;
};
struct WireHeader {
  char host[64];
  std::int32_t stage, zero;
  std::int64_t dropped;
};

constexpr int kTag = 7411;

void check(int result, const char* what) {
  if (result != MPI_SUCCESS)
    throw Failure(StatusCode::communicationError, std::string(what) + " of the timeline failed");
}

class File {
 public:
  File(const std::string& path, const DiskMargin& leaveFree)
      : path_(path), leaveFree_(leaveFree), file_(std::fopen(path.c_str(), "w")) {
    verify(file_ != nullptr);
  }
  ~File() {
    if (file_ != nullptr) std::fclose(file_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  void write(const std::string& text) {
    if (written_ >= looked_) {
      looked_ = written_ + kLook;
      requireRoom(path_, kLook, leaveFree_);
    }
    written_ += static_cast<std::int64_t>(text.size());
    verify(std::fwrite(text.data(), 1, text.size(), file_) == text.size());
  }
  void close() {
    const int result = std::fclose(file_);
    file_ = nullptr;
    verify(result == 0);
  }

 private:
  void verify(bool good) const {
    if (good) return;
    throw Failure(Problem{
        StatusCode::checkpointError, "the timeline " + path_ + " cannot be written: " + std::strerror(errno),
        "timeline.path", nlohmann::json(path_).dump(), "give a path that can be written, with room"});
  }
  /// After so many bytes the margin of the file system is looked at again.
  static constexpr std::int64_t kLook = std::int64_t{4} << 20;
  std::string path_;
  DiskMargin leaveFree_;
  std::FILE* file_;
  std::int64_t written_ = 0, looked_ = 0;
};

std::vector<WireEvent> wireEvents(const Activity& activity, std::int64_t clockOffset) {
  std::vector<WireEvent> events(static_cast<std::size_t>(activity.eventCount()));
  for (std::size_t i = 0; i < events.size(); ++i) {
    const ActivityEvent& from = activity.events()[i];
    WireEvent& to = events[i];
    std::snprintf(to.name, sizeof to.name, "%s", from.name);
    to.lane = static_cast<std::int32_t>(from.lane), to.exposed = from.exposed ? 1 : 0;
    to.unit = from.unit, to.microBatch = from.microBatch;
    to.start = from.startNanoseconds + clockOffset, to.end = from.endNanoseconds + clockOffset;
  }
  return events;
}

void writeRank(File* file, int rank, const WireHeader& header, const std::vector<WireEvent>& events,
               std::int64_t origin, bool* first) {
  using Json = nlohmann::ordered_json;
  const auto line = [&](const Json& object) {
    file->write((*first ? "" : ",\n") + object.dump());
    *first = false;
  };
  std::string name =
      "rank " + std::to_string(rank) + ", stage " + std::to_string(header.stage) + ", " + header.host;
  if (header.dropped > 0) name += " (" + std::to_string(header.dropped) + " events had no room)";
  line({{"ph", "M"}, {"name", "process_name"}, {"pid", rank}, {"args", {{"name", name}}}});
  for (int lane = 0; lane < kActivityLanes; ++lane) {
    line({{"ph", "M"},
          {"name", "thread_name"},
          {"pid", rank},
          {"tid", 1 + lane},
          {"args", {{"name", activityLaneName(static_cast<ActivityLane>(lane))}}}});
  }
  for (const WireEvent& e : events) {
    Json args = Json::object();
    if (e.unit >= 0) args["unit"] = e.unit;
    if (e.microBatch >= 0) args["microBatch"] = e.microBatch;
    if (e.lane != static_cast<int>(ActivityLane::compute)) args["exposed"] = e.exposed != 0;
    line({{"ph", "X"},
          {"name", e.name},
          {"cat", activityLaneName(static_cast<ActivityLane>(e.lane))},
          {"pid", rank},
          {"tid", 1 + e.lane},
          {"ts", static_cast<double>(e.start - origin) / 1000.0},
          {"dur", static_cast<double>(e.end - e.start) / 1000.0},
          {"args", args}});
  }
}

}  // namespace

std::int64_t clockOffsetNanoseconds(MPI_Comm comm, bool sameHostAsFirst) {
  constexpr int kRounds = 20;
  int rank = 0, size = 1;
  MPI_Comm_rank(comm, &rank), MPI_Comm_size(comm, &size);
  std::vector<int> same(static_cast<std::size_t>(size));
  const int own = sameHostAsFirst ? 1 : 0;
  check(MPI_Allgather(&own, 1, MPI_INT, same.data(), 1, MPI_INT, comm), "an exchange");
  std::int64_t offset = 0;
  for (int other = 1; other < size; ++other) {
    if (same[static_cast<std::size_t>(other)] != 0 || (rank != 0 && rank != other)) continue;
    std::int64_t fastest = std::numeric_limits<std::int64_t>::max();
    for (int round = 0; round < kRounds; ++round) {
      std::int64_t stamp = 0;
      if (rank == 0) {
        check(MPI_Recv(&stamp, 1, MPI_INT64_T, other, kTag, comm, MPI_STATUS_IGNORE), "a clock message");
        stamp = steadyNanoseconds();
        check(MPI_Send(&stamp, 1, MPI_INT64_T, other, kTag, comm), "a clock message");
        continue;
      }
      const std::int64_t before = steadyNanoseconds();
      check(MPI_Send(&before, 1, MPI_INT64_T, 0, kTag, comm), "a clock message");
      check(MPI_Recv(&stamp, 1, MPI_INT64_T, 0, kTag, comm, MPI_STATUS_IGNORE), "a clock message");
      const std::int64_t after = steadyNanoseconds();
      if (after - before >= fastest) continue;
      fastest = after - before;
      offset = stamp - (before + (after - before) / 2);
    }
  }
  return offset;
}

void writeTimeline(MPI_Comm comm, const Activity& activity, std::int64_t clockOffset,
                   const RankIdentity& identity, const std::string& path, const DiskMargin& leaveFree) {
  int rank = 0, size = 1;
  MPI_Comm_rank(comm, &rank), MPI_Comm_size(comm, &size);
  WireHeader header{};
  std::snprintf(header.host, sizeof header.host, "%s", identity.host.c_str());
  header.stage = identity.stage, header.dropped = activity.dropped();
  std::vector<WireEvent> events = wireEvents(activity, clockOffset);
  std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
  for (const WireEvent& e : events) earliest = std::min(earliest, e.start);
  std::int64_t origin = 0;
  check(MPI_Allreduce(&earliest, &origin, 1, MPI_INT64_T, MPI_MIN, comm), "a comparison");
  if (rank != 0) {
    const auto count = static_cast<std::int64_t>(events.size());
    check(MPI_Send(&header, sizeof header, MPI_BYTE, 0, kTag, comm), "a message");
    check(MPI_Send(&count, 1, MPI_INT64_T, 0, kTag, comm), "a message");
    check(MPI_Send(events.data(), static_cast<int>(count * static_cast<std::int64_t>(sizeof(WireEvent))),
                   MPI_BYTE, 0, kTag, comm),
          "a message");
    return;
  }
  std::optional<File> file;
  std::optional<Failure> refused;
  bool first = true;
  // What cannot be written is received all the same: the other ranks wait for that.
  const auto write = [&](const std::function<void()>& part) {
    if (refused) return;
    try {
      part();
    } catch (const Failure& failure) {
      refused = failure;
    }
  };
  write([&] {
    file.emplace(path, leaveFree);
    file->write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    writeRank(&*file, 0, header, events, origin, &first);
  });
  for (int other = 1; other < size; ++other) {
    std::int64_t count = 0;
    check(MPI_Recv(&header, sizeof header, MPI_BYTE, other, kTag, comm, MPI_STATUS_IGNORE), "a message");
    check(MPI_Recv(&count, 1, MPI_INT64_T, other, kTag, comm, MPI_STATUS_IGNORE), "a message");
    events.resize(static_cast<std::size_t>(count));
    check(MPI_Recv(events.data(), static_cast<int>(count * static_cast<std::int64_t>(sizeof(WireEvent))),
                   MPI_BYTE, other, kTag, comm, MPI_STATUS_IGNORE),
          "a message");
    write([&] { writeRank(&*file, other, header, events, origin, &first); });
  }
  write([&] {
    file->write("\n]}\n");
    file->close();
  });
  if (!refused) return;
  if (file) std::remove(path.c_str());  // half of one is no timeline
  throw Failure(*refused);
}

}  // namespace internevo::trainer
