// Which plans the tests of several ranks run: few, unless INTERNEVO_CUDA_TESTS=all.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/lattice.h"

namespace internevo::trainer::testing {

/// INTERNEVO_CUDA_TESTS=all: the long samples.
inline bool allAsked() {
  const char* const given = std::getenv("INTERNEVO_CUDA_TESTS");
  const std::string text = given == nullptr ? "" : given;
  if (!text.empty() && text != "all")
    throw std::runtime_error("INTERNEVO_CUDA_TESTS is " + text + "; give all or nothing");
  return text == "all";
}

/// What of a plan decides which streams and collectives there are, and what they wait for. A kind of collective counts where lanes
/// carry it or run beside it; `all`: also where there are no lanes.
inline std::vector<std::string> traitsOf(const PlanConfig& p, bool all) {
  std::vector<std::string> traits{"forward " + std::to_string(static_cast<int>(p.forwardOverlap)),
                                  "backward " + std::to_string(static_cast<int>(p.backwardOverlap))};
  const auto add = [&](bool has, const char* name) {
    if (!has) return;
    if (p.overlaps()) traits.push_back(std::string(name) + " with lanes");
    if (all) traits.emplace_back(name);
    if (all && !p.overlaps()) traits.push_back(std::string(name) + " without");
  };
  add(p.parameterSharding > 1, "ps"), add(p.gradientSharding > 1, "gs"),
      add(p.optimizerStateSharding > 1, "oss");
  add(p.ulysses(), "ulysses"), add(p.contextParallel > 1, "ring"), add(p.tensorParallel > 1, "tensor");
  add(p.overlapsActivations(), "activations beside");
  add(p.gateUp == GateUp::again && p.recomputeLayers == 0 && p.parameterSharding > 1, "gate and up again");
  add(p.gateUp == GateUp::host && p.recomputeLayers == 0, "gate and up in the host's memory");
  add(p.pipelineParallel > 1, "stages"), add(p.pipelineChunks > 1, "chunks");
  return traits;
}

/// Few plans that together have all traits which the lattice has (greedy).
inline std::vector<PlanConfig> planSample(const std::vector<PlanConfig>& lattice, bool all) {
  std::set<std::string> missed;
  for (const PlanConfig& plan : lattice) {
    for (const std::string& trait : traitsOf(plan, all)) missed.insert(trait);
  }
  std::vector<PlanConfig> sample;
  while (!missed.empty()) {
    const auto news = [&](const PlanConfig& plan) {
      const auto traits = traitsOf(plan, all);
      return std::count_if(traits.begin(), traits.end(),
                           [&](const std::string& trait) { return missed.count(trait) > 0; });
    };
    const auto best = std::max_element(lattice.begin(), lattice.end(),
                                       [&](const auto& a, const auto& b) { return news(a) < news(b); });
    for (const std::string& trait : traitsOf(*best, all)) missed.erase(trait);
    sample.push_back(*best);
  }
  return sample;
}

}  // namespace internevo::trainer::testing
