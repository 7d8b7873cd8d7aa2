#include "internevo/host_use.h"

#include <mpi.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <thread>

#include "internevo/collectives.h"

namespace internevo {

namespace {

std::string textOf(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

double secondsOf(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double meanClockHertz() {
  std::ifstream file("/proc/cpuinfo");
  double sum = 0;
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (line.rfind("cpu MHz", 0) != 0 || colon == std::string::npos) continue;
    sum += 1e6 * std::strtod(line.c_str() + colon + 1, nullptr), ++count;
  }
  return count == 0 ? 0 : sum / count;
}

/// What one rank says; plain bytes, so that MPI carries it whole.
struct Word {
  std::array<char, MPI_MAX_PROCESSOR_NAME> host{};
  std::array<char, 64> machine{};
  HostCounters before, after;
  double seconds = 0;
  int cores = 0;
};

}  // namespace

void readProcessorTimes(const std::string& stat, double ticksPerSecond, HostCounters* counters) {
  std::istringstream line(stat);
  std::string name;
  // user nice system idle iowait irq softirq steal; guests are part of user.
  std::array<double, 8> ticks{};
  if (!(line >> name) || name != "cpu") return;
  for (double& each : ticks) {
    if (!(line >> each)) each = 0;
  }
  counters->busySeconds = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / ticksPerSecond;
  counters->stolenSeconds = ticks[7] / ticksPerSecond;
}

HostCounters HostCounters::read(bool withClock) {
  HostCounters counters;
  readProcessorTimes(textOf("/proc/stat"), static_cast<double>(sysconf(_SC_CLK_TCK)), &counters);
  std::istringstream loads(textOf("/proc/loadavg"));
  double ignored = 0;
  loads >> counters.load >> ignored >> ignored >> counters.runnable;
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  counters.ownSeconds = secondsOf(own.ru_utime) + secondsOf(own.ru_stime);
  counters.involuntarySwitches = own.ru_nivcsw;
  if (withClock) counters.clockHertz = meanClockHertz();
  return counters;
}

HostUseMeter::HostUseMeter()
    : isFirst_(localRank() == 0),
      before_(HostCounters::read(isFirst_)),
      begin_(std::chrono::steady_clock::now()) {}

std::vector<HostUse> HostUseMeter::end() const {
  Word own;
  own.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  own.before = before_;
  own.after = HostCounters::read(isFirst_);
  own.cores = static_cast<int>(std::thread::hardware_concurrency());
  int length = 0;
  MPI_Get_processor_name(own.host.data(), &length);
  // Hosts may be namespaces of one machine, whose processors they share: the kernel's own identity tells machines apart.
  const std::string machine = textOf("/proc/sys/kernel/random/boot_id");
  std::copy_n(machine.begin(), std::min(machine.size(), own.machine.size() - 1), own.machine.begin());

  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<Word> all(rank == 0 ? static_cast<std::size_t>(ranks) : 0);
  if (MPI_Gather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, 0, MPI_COMM_WORLD) !=
      MPI_SUCCESS)
    return {};

  std::vector<HostUse> hosts;
  std::map<std::string, std::size_t> known;
  for (const Word& word : all) {
    const std::string key = word.machine[0] == '\0' ? word.host.data() : word.machine.data();
    const auto [found, isNew] = known.emplace(key, hosts.size());
    if (isNew) {
      HostUse host;
      host.host = word.host.data(), host.cores = word.cores, host.seconds = word.seconds;
      host.othersSeconds = word.after.busySeconds - word.before.busySeconds;
      host.stolenSeconds = std::max(0.0, word.after.stolenSeconds - word.before.stolenSeconds);
      host.loadBefore = word.before.load, host.loadAfter = word.after.load;
      host.runnableBefore = word.before.runnable, host.runnableAfter = word.after.runnable;
      hosts.push_back(host);
    }
    HostUse& host = hosts[found->second];
    ++host.ranks;
    host.ranksSeconds += word.after.ownSeconds - word.before.ownSeconds;
    host.involuntarySwitches += word.after.involuntarySwitches - word.before.involuntarySwitches;
    if (host.clockBeforeHertz == 0) host.clockBeforeHertz = word.before.clockHertz;
    if (host.clockAfterHertz == 0) host.clockAfterHertz = word.after.clockHertz;
  }
  for (HostUse& host : hosts) host.othersSeconds = std::max(0.0, host.othersSeconds - host.ranksSeconds);
  return hosts;
}

}  // namespace internevo
