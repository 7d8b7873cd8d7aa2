#include "cuda/check/telemetry.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

namespace internevo::check {

using Json = nlohmann::json;

namespace {

constexpr double kFirstLineSeconds = 5;
constexpr auto kInterval = std::chrono::milliseconds(250);

/// What is called of NVML (nvml.h of CUDA 12 and 13: these entry points and numbers have not changed since CUDA 10).
struct Nvml {
  using Device = struct nvmlDevice*;
  struct Memory {
    unsigned long long total = 0, free = 0, used = 0;
  };
  static constexpr int kSuccess = 0, kClockSm = 1, kClockMemory = 2, kTemperatureGpu = 0;

  int (*init)() = nullptr;
  const char* (*errorString)(int) = nullptr;
  int (*driverVersion)(char*, unsigned) = nullptr;
  int (*byIndex)(unsigned, Device*) = nullptr;
  int (*byUuid)(const char*, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*clock)(Device, int, unsigned*) = nullptr;
  int (*mostClock)(Device, int, unsigned*) = nullptr;
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;
  int (*powerLimit)(Device, unsigned*) = nullptr;
  int (*throttle)(Device, unsigned long long*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;

  bool open(std::string* why) {
    const char* const given = std::getenv("INTERNEVO_NVML_LIBRARY");
    void* const library = dlopen(given != nullptr ? given : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return *why = std::string("NVML cannot be opened: ") + dlerror(), false;
    const auto take = [&](const char* symbol, auto* function) {
      *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(library, symbol));
      if (*function == nullptr && why->empty()) *why = std::string("NVML has no ") + symbol;
    };
    take("nvmlInit_v2", &init), take("nvmlErrorString", &errorString),
        take("nvmlSystemGetDriverVersion", &driverVersion);
    take("nvmlDeviceGetHandleByIndex_v2", &byIndex), take("nvmlDeviceGetHandleByUUID", &byUuid),
        take("nvmlDeviceGetName", &name);
    take("nvmlDeviceGetClockInfo", &clock), take("nvmlDeviceGetMaxClockInfo", &mostClock),
        take("nvmlDeviceGetTemperature", &temperature);
    take("nvmlDeviceGetPowerUsage", &power), take("nvmlDeviceGetEnforcedPowerLimit", &powerLimit);
    take("nvmlDeviceGetCurrentClocksThrottleReasons", &throttle), take("nvmlDeviceGetMemoryInfo", &memory);
    return why->empty();
  }

  /// The first GPU that CUDA_VISIBLE_DEVICES shows.
  int device(Device* found) const {
    const char* const shown = std::getenv("CUDA_VISIBLE_DEVICES");
    const std::string first =
        shown == nullptr ? "" : std::string(shown).substr(0, std::string(shown).find(','));
    if (first.rfind("GPU-", 0) == 0 || first.rfind("MIG-", 0) == 0) return byUuid(first.c_str(), found);
    return byIndex(static_cast<unsigned>(std::strtoul(first.c_str(), nullptr, 10)), found);
  }
};

/// Bits of nvmlDeviceGetCurrentClocksThrottleReasons; the first, an idle GPU, is no reason.
constexpr const char* kThrottle[] = {
    nullptr,           "applicationsClocks", "softwarePowerCap",   "hardwareSlowdown", "syncBoost",
    "softwareThermal", "hardwareThermal",    "hardwarePowerBrake", "displayClocks"};

bool say(const Json& line) {
  const std::string text = line.dump() + "\n";
  return write(STDOUT_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

void number(Json* sample, const char* name, int code, double value) {
  if (code == Nvml::kSuccess) (*sample)[name] = value;
}

}  // namespace

int sampleGpu() {
  Nvml nvml;
  Nvml::Device device = nullptr;
  std::string why;
  if (!nvml.open(&why)) return say({{"absent", why}}), 0;
  int code = nvml.init();
  if (code == Nvml::kSuccess) code = nvml.device(&device);
  if (code != Nvml::kSuccess)
    return say({{"absent", std::string("NVML finds no GPU: ") + nvml.errorString(code)}}), 0;
  char driver[96] = "", name[96] = "";
  nvml.driverVersion(driver, sizeof driver), nvml.name(device, name, sizeof name);
  unsigned most = 0;
  Json about{{"device", name}, {"driver", driver}};
  code = nvml.mostClock(device, Nvml::kClockSm, &most), number(&about, "largestSmClockMhz", code, most);
  code = nvml.mostClock(device, Nvml::kClockMemory, &most),
  number(&about, "largestMemoryClockMhz", code, most);
  code = nvml.powerLimit(device, &most), number(&about, "powerLimitWatts", code, most / 1e3);
  for (bool read = say(about); read; std::this_thread::sleep_for(kInterval)) {
    unsigned value = 0;
    unsigned long long reasons = 0;
    Nvml::Memory memory;
    Json sample = Json::object();
    code = nvml.clock(device, Nvml::kClockSm, &value), number(&sample, "smClockMhz", code, value);
    code = nvml.clock(device, Nvml::kClockMemory, &value), number(&sample, "memoryClockMhz", code, value);
    code = nvml.power(device, &value), number(&sample, "powerWatts", code, value / 1e3);
    code = nvml.temperature(device, Nvml::kTemperatureGpu, &value),
    number(&sample, "temperatureCelsius", code, value);
    code = nvml.memory(device, &memory), number(&sample, "usedBytes", code, static_cast<double>(memory.used));
    if (nvml.throttle(device, &reasons) == Nvml::kSuccess) sample["throttle"] = reasons;
    read = say(sample);
  }
  return 0;
}

Telemetry::Telemetry(std::vector<std::string> arguments) {
  child_ = start(arguments, true);
  const auto begun = std::chrono::steady_clock::now();
  while (about_.is_null() && child_.output >= 0 &&
         std::chrono::steady_clock::now() - begun < std::chrono::duration<double>(kFirstLineSeconds)) {
    poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (about_.is_null()) about_ = {{"absent", "NVML gives no answer"}};
}

Telemetry::~Telemetry() {
  for (const int each : {child_.output, child_.errors, child_.results}) {
    if (each >= 0) close(each);
  }
  int status = 0;
  if (child_.pid > 0) endAll(child_.pid, 0, &status);
}

void Telemetry::begin() {
  poll();
  samples_ = Json::array();
}

void Telemetry::poll() {
  if (child_.output >= 0 && !drain(child_.output, &pending_)) close(child_.output), child_.output = -1;
  for (std::size_t end; (end = pending_.find('\n')) != std::string::npos; pending_.erase(0, end + 1))
    take(pending_.substr(0, end));
}

void Telemetry::take(const std::string& line) {
  const Json each = Json::parse(line, nullptr, false);
  if (!each.is_object()) return;
  if (about_.is_null()) {
    about_ = each;
  } else {
    samples_.push_back(each);
  }
}

Json Telemetry::summary() {
  poll();
  if (about_.contains("absent")) return about_;
  if (samples_.empty()) return {{"absent", "no sample came in time"}};
  Json result{{"samples", samples_.size()}};
  for (const char* const name :
       {"smClockMhz", "memoryClockMhz", "powerWatts", "temperatureCelsius", "usedBytes"}) {
    std::vector<double> values;
    for (const Json& each : samples_) {
      if (each.contains(name)) values.push_back(each[name]);
    }
    if (values.empty()) continue;
    std::sort(values.begin(), values.end());
    result[name] = {
        {"least", values.front()}, {"median", values[values.size() / 2]}, {"largest", values.back()}};
  }
  std::set<std::string> reasons;
  for (const Json& each : samples_) {
    const std::uint64_t bits = each.value("throttle", std::uint64_t{0});
    for (std::size_t i = 0; i < std::size(kThrottle); ++i) {
      if (kThrottle[i] != nullptr && (bits >> i & 1) != 0) reasons.insert(kThrottle[i]);
    }
  }
  result["throttled"] = reasons;
  return result;
}

}  // namespace internevo::check
