// Clocks, power and temperature of the GPU while a case runs, by NVML, in a process of its own: a driver that hangs costs nothing else.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cuda/check/children.h"

namespace internevo::check {

/// Writes a line of JSON to stdout four times a second until nobody reads: {"versions": …, "device": …} or {"absent": why} first, samples then.
/// The library is libnvidia-ml.so.1, or what INTERNEVO_NVML_LIBRARY names.
int sampleGpu();

class Telemetry {
 public:
  /// `arguments`: the program that calls sampleGpu. Waits for its first line, at most five seconds.
  explicit Telemetry(std::vector<std::string> arguments);
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  /// Versions and name, or why there are none.
  const nlohmann::json& about() const { return about_; }
  pid_t process() const { return child_.pid; }
  /// From here on samples count.
  void begin();
  /// To be called now and then: reads what there is.
  void poll();
  /// Least, median and largest of the samples since begin; {"absent": why} where there are none.
  nlohmann::json summary();

 private:
  void take(const std::string& line);

  Started child_;
  std::string pending_;
  nlohmann::json about_, samples_ = nlohmann::json::array();
};

}  // namespace internevo::check
