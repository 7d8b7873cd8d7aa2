#include "probe/device.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

namespace internevo::probe {

namespace {

struct Range {
  std::int64_t first, largest;
};
/// Rows of the square matrices of the peak, and elements of an array beyond the caches.
struct Sizes {
  Range peak, stream;
};
Sizes sizesFor(const MemorySpace& space) {
  constexpr std::int64_t kMebi = std::int64_t{1} << 20;
  if (space.hostReads()) return {{1536, 1536}, {64 * kMebi / 4, 64 * kMebi / 4}};
  return {{64, 8192}, {kMebi / 16, 512 * kMebi / 4}};
}

/// Work that takes so long is large enough for a rate. Devices differ by more than one size would do for.
constexpr double kEnoughSeconds = 0.02;

/// Calls `measure(size, &seconds)` for sizes that double, up to the first that takes long enough.
template <typename Measure>
Status grow(Range sizes, Timer& timer, const Measure& measure) {
  for (std::int64_t size = sizes.first;; size = std::min(2 * size, sizes.largest)) {
    double seconds = 0;
    INTERNEVO_RETURN_IF_ERROR(measure(size, &seconds));
    INTERNEVO_RETURN_IF_ERROR(timer.largest(&seconds));
    if (size == sizes.largest || seconds >= kEnoughSeconds) return Status::success();
  }
}

std::string processorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) == 0 && line.find(':') != std::string::npos) {
      return line.substr(line.find(':') + 2);
    }
  }
  return "unknown";
}

std::string mpiVersion() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text);
  const std::size_t begin = all.find(" v") == std::string::npos ? 0 : all.find(" v") + 2;
  return all.substr(begin, all.find_first_of(", \n", begin) - begin);
}

/// Best rate of one rank while all ranks multiply.
Status peak(DataType type, Backend& backend, Timer& timer, std::int64_t budgetBytes, double* flopsPerSecond) {
  return grow(sizesFor(backend.memory()).peak, timer, [&](std::int64_t size, double* seconds) {
    Memory memory(budgetBytes, backend.memory());
    ModulePoint point;
    point.module = "linear";
    point.pass = "forward";
    point.precision = type;
    point.rows = point.inputs = point.outputs = size;
    Work work;
    INTERNEVO_RETURN_IF_ERROR(timer.agree(prepareModule(point, backend, memory, &work)));
    Samples samples;
    INTERNEVO_RETURN_IF_ERROR(timer.measure(work.run, &samples));
    *seconds = samples.p10Seconds;
    *flopsPerSecond = work.flops / samples.p10Seconds;
    return Status::success();
  });
}

/// y = a + b over arrays beyond the caches: bytes read and written a second.
Status bandwidth(Backend& backend, Timer& timer, std::int64_t budgetBytes, double* bytesPerSecond) {
  return grow(sizesFor(backend.memory()).stream, timer, [&](std::int64_t elements, double* seconds) {
    Memory memory(budgetBytes, backend.memory());
    const View a = memory.take(elements, DataType::float32), b = memory.take(elements, DataType::float32);
    const View y = memory.take(elements, DataType::float32);
    INTERNEVO_RETURN_IF_ERROR(timer.agree(memory.status()));
    Samples samples;
    INTERNEVO_RETURN_IF_ERROR(timer.measure([&] { return backend.add(elements, a, b, y); }, &samples));
    *seconds = samples.p10Seconds;
    *bytesPerSecond = 3.0 * 4.0 * static_cast<double>(elements) / samples.p10Seconds;
    return Status::success();
  });
}

/// Between the backend's memory and the host's, all ranks at a time: bytes a second to the host, and back.
Status hostCopies(Backend& backend, Timer& timer, std::int64_t budgetBytes, double* toHost,
                  double* toDevice) {
  return grow(sizesFor(backend.memory()).stream, timer, [&](std::int64_t elements, double* seconds) {
    Memory memory(budgetBytes, backend.memory());
    const View here = memory.take(elements, DataType::float32);
    const std::int64_t bytes = 4 * elements;
    const std::unique_ptr<HostCopies> copies = backend.createHostCopies();
    void* there = nullptr;
    Status ready = memory.status();
    if (ready.ok()) ready = copies->allocate(bytes, &there);
    INTERNEVO_RETURN_IF_ERROR(timer.agree(ready));
    Samples out, back;
    INTERNEVO_RETURN_IF_ERROR(timer.measure([&] { return copies->toHost(there, here.data, bytes); }, &out));
    INTERNEVO_RETURN_IF_ERROR(
        timer.measure([&] { return copies->toDevice(here.data, there, bytes); }, &back));
    *seconds = std::min(out.p10Seconds, back.p10Seconds);
    *toHost = static_cast<double>(bytes) / out.p10Seconds;
    *toDevice = static_cast<double>(bytes) / back.p10Seconds;
    return Status::success();
  });
}

}  // namespace

std::int64_t runtimeBytes(const MemorySpace& space) {
  if (const std::int64_t taken = space.occupancy().takenBytes; taken > 0) return taken;
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::int64_t memoryBudgetBytes(const MemorySpace& space, int ranksOnHost) {
  if (const MemoryOccupancy now = space.occupancy(); now.totalBytes > 0)
    return (now.totalBytes - now.takenBytes) / 10 * 8;
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  std::int64_t kibibytes = 0;
  while (file >> name >> kibibytes >> unit) {
    if (name == "MemAvailable:") return kibibytes * 1024 / 10 * 8 / std::max(1, ranksOnHost);
  }
  return std::int64_t{1} << 30;
}

Status describeDevice(const MpiSession& session, Backend& backend, Timer& timer, std::int64_t budgetBytes,
                      double runtimeBytes, Json* event) {
  double fp32 = 0, bf16 = 0, bytes = 0, toHost = 0, toDevice = 0;
  INTERNEVO_RETURN_IF_ERROR(peak(DataType::float32, backend, timer, budgetBytes, &fp32));
  INTERNEVO_RETURN_IF_ERROR(peak(DataType::bfloat16, backend, timer, budgetBytes, &bf16));
  INTERNEVO_RETURN_IF_ERROR(bandwidth(backend, timer, budgetBytes, &bytes));
  INTERNEVO_RETURN_IF_ERROR(hostCopies(backend, timer, budgetBytes, &toHost, &toDevice));
  INTERNEVO_RETURN_IF_ERROR(timer.largest(&runtimeBytes));
  const std::string isa = backend.name();
  Json libraries{{"openmpi", mpiVersion()}};
  for (const LibraryVersion& each : backend.libraries()) libraries[each.name] = each.version;
  *event = {{"event", "device"},
            {"name", backend.memory().hostReads() ? processorName() : backend.name()},
            {"cores", static_cast<int>(std::thread::hardware_concurrency())},
            {"isa", isa.rfind("cpu-", 0) == 0 ? isa.substr(4) : isa},
            {"peakFlopsPerSecondFp32", fp32},
            {"peakFlopsPerSecondBf16", bf16},
            {"memoryBandwidthBytesPerSecond", bytes},
            {"toHostBytesPerSecond", toHost},
            {"toDeviceBytesPerSecond", toDevice},
            {"runtimeBytes", static_cast<std::int64_t>(runtimeBytes)},
            {"compiler", "gcc " __VERSION__},
            {"libraries", libraries},
            {"hosts", session.hosts()}};
  return Status::success();
}

}  // namespace internevo::probe
