// NVML's entry points as check/telemetry.cpp calls them, in a library that is opened as NVML is: a GPU with clocks that go up and down.
#include <cstdio>

extern "C" {

#define INTERNEVO_NVML __attribute__((visibility("default")))

INTERNEVO_NVML int nvmlInit_v2() { return 0; }
INTERNEVO_NVML const char* nvmlErrorString(int) { return "an error of the model"; }
INTERNEVO_NVML int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  return std::snprintf(text, bytes, "580.0"), 0;
}
INTERNEVO_NVML int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  return *device = reinterpret_cast<void*>(1), index == 0 ? 0 : 6;
}
INTERNEVO_NVML int nvmlDeviceGetHandleByUUID(const char*, void**) { return 6; }
INTERNEVO_NVML int nvmlDeviceGetName(void*, char* text, unsigned bytes) {
  return std::snprintf(text, bytes, "the model of a GPU"), 0;
}
INTERNEVO_NVML int nvmlDeviceGetClockInfo(void*, int type, unsigned* mhz) {
  static unsigned calls = 0;
  return *mhz = type == 1 ? 1500 + 100 * (++calls % 3) : 2600, 0;
}
INTERNEVO_NVML int nvmlDeviceGetMaxClockInfo(void*, int type, unsigned* mhz) {
  return *mhz = type == 1 ? 1980 : 2619, 0;
}
INTERNEVO_NVML int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) { return *celsius = 41, 0; }
INTERNEVO_NVML int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) { return *milliwatts = 350500, 0; }
INTERNEVO_NVML int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  return *milliwatts = 700000, 0;
}
INTERNEVO_NVML int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  return *reasons = 1 | 4, 0;
}
struct Memory {
  unsigned long long total, free, used;
};
INTERNEVO_NVML int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  return *memory = {80ull << 30, 70ull << 30, 10ull << 30}, 0;
}
}
