#include "probe/device.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

namespace internevo::probe {

namespace {

constexpr std::int64_t kPeakSize = 1536;                                // square matrices of the peak
constexpr std::int64_t kStreamElements = (std::int64_t{64} << 20) / 4;  // 64 MiB an array: beyond the caches

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
  Memory memory(budgetBytes);
  ModulePoint point;
  point.module = "linear";
  point.pass = "forward";
  point.precision = type;
  point.rows = point.inputs = point.outputs = kPeakSize;
  Work work;
  INTERNEVO_RETURN_IF_ERROR(timer.agree(prepareModule(point, backend, memory, &work)));
  Samples samples;
  INTERNEVO_RETURN_IF_ERROR(timer.measure(work.run, &samples));
  *flopsPerSecond = work.flops / samples.p10Seconds;
  return Status::success();
}

/// y = a + b over arrays beyond the caches: bytes read and written a second.
Status bandwidth(Backend& backend, Timer& timer, std::int64_t budgetBytes, double* bytesPerSecond) {
  Memory memory(budgetBytes);
  const View a = memory.take(kStreamElements, DataType::float32), b = memory.take(kStreamElements, DataType::float32);
  const View y = memory.take(kStreamElements, DataType::float32);
  INTERNEVO_RETURN_IF_ERROR(timer.agree(memory.status()));
  Samples samples;
  INTERNEVO_RETURN_IF_ERROR(timer.measure([&] { return backend.add(kStreamElements, a, b, y); }, &samples));
  *bytesPerSecond = 3.0 * 4.0 * static_cast<double>(kStreamElements) / samples.p10Seconds;
  return Status::success();
}

}  // namespace

std::int64_t residentBytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::int64_t memoryBudgetBytes(int ranksOnHost) {
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
  double fp32 = 0, bf16 = 0, bytes = 0;
  INTERNEVO_RETURN_IF_ERROR(peak(DataType::float32, backend, timer, budgetBytes, &fp32));
  INTERNEVO_RETURN_IF_ERROR(peak(DataType::bfloat16, backend, timer, budgetBytes, &bf16));
  INTERNEVO_RETURN_IF_ERROR(bandwidth(backend, timer, budgetBytes, &bytes));
  INTERNEVO_RETURN_IF_ERROR(timer.largest(&runtimeBytes));
  const std::string isa = backend.name();
  *event = {{"event", "device"},
            {"name", processorName()},
            {"cores", static_cast<int>(std::thread::hardware_concurrency())},
            {"isa", isa.rfind("cpu-", 0) == 0 ? isa.substr(4) : isa},
            {"peakFlopsPerSecondFp32", fp32},
            {"peakFlopsPerSecondBf16", bf16},
            {"memoryBandwidthBytesPerSecond", bytes},
            {"runtimeBytes", static_cast<std::int64_t>(runtimeBytes)},
            {"compiler", "gcc " __VERSION__},
            {"libraries", {{"openmpi", mpiVersion()}}},
            {"hosts", session.hosts()}};
  return Status::success();
}

}  // namespace internevo::probe
