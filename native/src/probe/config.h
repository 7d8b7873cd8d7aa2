// What the probe is asked to measure: one JSON document.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "internevo/status.h"
#include "internevo/tensor.h"

namespace internevo::probe {

using Json = nlohmann::json;

/// Names the field, its value and the remedy of a document that was refused.
struct Problem {
  StatusCode code = StatusCode::ok;
  std::string message;
  std::string field;
  Json value;
  std::string remedy;
};

enum class Collective { allReduce, allGather, reduceScatter, allToAll, broadcast, pointToPoint };

struct CollectivePoint {
  Collective op = Collective::allReduce;
  std::string opName, placement;
  std::int64_t bytes = 0;  ///< of the whole tensor; all-to-all: what one rank sends, its own block included
  std::vector<std::vector<int>> groups;  ///< all of one size; they run at the same time
};

/// Sizes that a module does not have stay 0.
struct ModulePoint {
  Json shape;  ///< as it was asked, for the event
  std::string module, pass;
  DataType precision = DataType::float32;
  std::int64_t rows = 0, inputs = 0, outputs = 0, batch = 0, sequence = 0, heads = 0, kvHeads = 0,
               headSize = 0;
  std::int64_t width = 0, vocabulary = 0, elements = 0;
};

struct OverlapPoint {
  ModulePoint module;
  CollectivePoint collective;
};

enum class DeviceKind { cpu, cuda };

struct Config {
  DeviceKind deviceKind = DeviceKind::cpu;
  int threadsPerRank = 1;
  int minimumSamples = 5;
  double maximumSeconds = 1;  ///< bound of one point
  double targetRelativeSpread = 0.05;
  std::vector<CollectivePoint> collectives;
  std::vector<ModulePoint> modules;
  std::vector<OverlapPoint> overlaps;
  bool device = false;
};

/// Reads and checks the document for `worldSize` ranks. Returns false and fills `problem` when it is refused.
bool parseConfig(const std::string& text, int worldSize, Config* config, Problem* problem);

}  // namespace internevo::probe
