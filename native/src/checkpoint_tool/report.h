// What internevo-checkpoint writes on standard output: progress, then one result or error; one JSON object a line.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/failure.h"

namespace internevo::trainer {

using OrderedJson = nlohmann::ordered_json;

void emitLine(const OrderedJson& event);
void emitProblem(const Problem& problem);

/// Bytes done of bytes in all; told five times a second at most.
class ProgressReport {
 public:
  explicit ProgressReport(std::int64_t totalBytes) : total_(totalBytes) {}
  void add(std::int64_t bytes);

 private:
  const std::int64_t total_;
  std::int64_t done_ = 0;
  double lastSeconds_ = 0;
};

/// The directory of one checkpoint: `path` itself, or the latest in it.
/// Errors: Failure checkpointError when there is none.
std::string checkpointAt(const std::string& path);

}  // namespace internevo::trainer
