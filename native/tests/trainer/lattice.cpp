#include "lattice.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "support.h"
#include "trainer/failure.h"
#include "trainer/gather_schedule.h"
#include "trainer/pipeline_schedule.h"

namespace internevo::trainer::testing {

namespace {

std::vector<int> divisors(int value) {
  std::vector<int> result;
  for (int d = 1; d <= value; ++d) {
    if (value % d == 0) result.push_back(d);
  }
  return result;
}

bool legal(const Config& base, const PlanConfig& plan) {
  Config c = base;
  c.plan = plan;
  c.mesh = meshOf(plan);
  try {
    validatePlan(c);
  } catch (const Failure&) {
    return false;
  }
  return true;
}

constexpr std::size_t kFactors = 16;
std::array<std::int64_t, kFactors> factorsOf(const PlanConfig& p) {
  return {p.microBatchSize,
          p.microBatches,
          p.recompute,
          p.dataParallel,
          p.sequenceParallel,
          p.parameterSharding,
          p.gradientSharding,
          p.optimizerStateSharding,
          p.pipelineParallel,
          p.tensorParallel,
          p.pipelineChunks,
          p.recomputeLayers,
          p.contextParallel,
          static_cast<std::int64_t>(p.gateUp),
          static_cast<std::int64_t>(p.forwardOverlap),
          static_cast<std::int64_t>(p.backwardOverlap)};
}

/// Every pair of values of every two factors of any plan, numbered.
class Pairs {
 public:
  explicit Pairs(const std::vector<PlanConfig>& lattice) {
    for (const PlanConfig& plan : lattice) {
      const auto factors = factorsOf(plan);
      std::array<int, kFactors>& numbers = numbers_.emplace_back();
      for (std::size_t i = 0; i < kFactors; ++i) {
        numbers[i] =
            numberOf_.emplace(std::pair{i, factors[i]}, static_cast<int>(numberOf_.size())).first->second;
      }
    }
    open_.assign(numberOf_.size() * numberOf_.size(), false);
    for (std::size_t plan = 0; plan < numbers_.size(); ++plan) {
      forEach(plan, [&](std::size_t pair) { openCount_ += !open_[pair], open_[pair] = true; });
    }
  }
  bool anyOpen() const { return openCount_ > 0; }
  std::size_t openOf(std::size_t plan) const {
    std::size_t count = 0;
    forEach(plan, [&](std::size_t pair) { count += open_[pair]; });
    return count;
  }
  void close(std::size_t plan) {
    forEach(plan, [&](std::size_t pair) { openCount_ -= open_[pair], open_[pair] = false; });
  }

 private:
  template <typename Visit>
  void forEach(std::size_t plan, const Visit& visit) const {
    const auto& numbers = numbers_[plan];
    for (std::size_t i = 0; i < kFactors; ++i) {
      for (std::size_t k = i + 1; k < kFactors; ++k) {
        visit(static_cast<std::size_t>(numbers[i]) * numberOf_.size() + static_cast<std::size_t>(numbers[k]));
      }
    }
  }

  std::map<std::pair<std::size_t, std::int64_t>, int> numberOf_;
  std::vector<std::array<int, kFactors>> numbers_;  ///< [plan]
  std::vector<bool> open_;
  std::size_t openCount_ = 0;
};

}  // namespace

namespace {

/// Every sharding, recomputation and interleaving of a plan whose ranks and batches are set.
void addVariants(const Config& base, PlanConfig p, std::vector<PlanConfig>* plans) {
  for (const int ps : divisors(p.replicaRanks())) {
    for (const int oss : divisors(p.replicaRanks() / ps)) {
      for (const int gs : oss == 1 ? std::vector<int>{1} : std::vector<int>{1, oss}) {
        for (const int chunks : p.pipelineParallel == 1 ? std::vector<int>{1} : std::vector<int>{1, 2}) {
          for (const int recomputed : {0, 1, -1}) {
            p.parameterSharding = ps, p.optimizerStateSharding = oss, p.gradientSharding = gs;
            p.pipelineChunks = chunks, p.recompute = recomputed < 0,
            p.recomputeLayers = std::max(0, recomputed);
            if (legal(base, p)) plans->push_back(p);
          }
        }
      }
    }
  }
}

/// A third of the plans a second time, with the products of gate and up made again instead of kept; another third with them in the
/// host's memory.
std::vector<PlanConfig> withGateUpElsewhere(const Config& base, const std::vector<PlanConfig>& plans) {
  std::vector<PlanConfig> all;
  int count = 0;
  for (PlanConfig p : plans) {
    all.push_back(p);
    p.gateUp = count % 3 == 0 ? GateUp::again : GateUp::host;
    if (legal(base, p) && count++ % 3 < 2) all.push_back(p);
  }
  return all;
}

}  // namespace

std::vector<PlanConfig> latticeOf(const Config& base, int ranks, std::int64_t sequences) {
  std::vector<PlanConfig> plans;
  PlanConfig p;
  for (const int pp : divisors(ranks)) {
    for (const int dp : divisors(ranks / pp)) {
      const int sp = ranks / pp / dp;
      if (sequences % dp != 0) continue;
      p.pipelineParallel = pp, p.dataParallel = dp, p.sequenceParallel = sp;
      for (const int b : divisors(static_cast<int>(sequences / dp))) {
        p.microBatchSize = b, p.microBatches = sequences / dp / b;
        for (const int tp : sp == 1 ? std::vector<int>{1} : std::vector<int>{1, sp}) {
          for (const int context : tp == 1 ? divisors(sp) : std::vector<int>{1}) {
            p.tensorParallel = tp, p.contextParallel = context;
            addVariants(base, p, &plans);
          }
        }
      }
    }
  }
  return withGateUpElsewhere(base, plans);
}

std::vector<PlanConfig> withOverlaps(const std::vector<PlanConfig>& lattice) {
  std::vector<PlanConfig> plans;
  for (PlanConfig p : lattice) {
    for (const auto forward : {ForwardOverlap::none, ForwardOverlap::block, ForwardOverlap::interLayer,
                               ForwardOverlap::intraLayer}) {
      for (const auto backward :
           {BackwardOverlap::none, BackwardOverlap::block, BackwardOverlap::intraLayer}) {
        p.forwardOverlap = forward, p.backwardOverlap = backward;
        plans.push_back(p);
      }
    }
  }
  return plans;
}

namespace {

/// Equal for policies that differ in nothing that any stage does.
std::string scheduleKey(const Config& base, const PlanConfig& plan) {
  std::string key = plan.overlaps() ? "lane" : "";
  if (plan.overlapsActivations()) key += " activations beside";
  if (plan.replicaRanks() == 1) return key;
  if (plan.backwardOverlap != BackwardOverlap::none) key += " reduces beside";
  for (int stage = 0; stage < plan.pipelineParallel; ++stage) {
    const Layout layout(base.model, plan, {stage, 0});
    const auto operations =
        pipelineSchedule(stage, plan.pipelineParallel, plan.microBatches, plan.pipelineChunks);
    for (const GatherGroup& group : gatherSchedule(plan, layout, operations)) {
      key += group.ahead ? " ahead" : " then";
      for (const int unit : group.units) key += " " + std::to_string(unit);
    }
    for (const UnitRange& group : gradientSchedule(plan, layout, operations)) {
      key += " staged " + std::to_string(group.first) + " " + std::to_string(group.count);
    }
  }
  return key;
}

}  // namespace

std::vector<PlanConfig> overlapsOf(const Config& base, const PlanConfig& plan) {
  std::vector<PlanConfig> different;
  std::set<std::string> keys;
  for (const PlanConfig& each : withOverlaps({plan})) {
    if (each.overlaps() && keys.insert(scheduleKey(base, each)).second) different.push_back(each);
  }
  return different;
}

std::vector<int> partsOf(const std::vector<PlanConfig>& plans, bool tiedEmbeddings, int parts) {
  std::map<std::string, int> numbers;
  std::vector<int> result;
  for (const PlanConfig& plan : plans) {
    const int next = static_cast<int>(numbers.size());
    result.push_back(numbers.emplace(orderKeyOf(plan, tiedEmbeddings), next).first->second % parts);
  }
  return result;
}

std::vector<PlanConfig> pairwiseSample(const std::vector<PlanConfig>& lattice) {
  Pairs pairs(lattice);
  std::vector<PlanConfig> sample;
  while (pairs.anyOpen()) {
    std::size_t best = 0, most = 0;
    for (std::size_t plan = 0; plan < lattice.size(); ++plan) {
      if (const std::size_t covered = pairs.openOf(plan); covered > most) most = covered, best = plan;
    }
    pairs.close(best);
    sample.push_back(lattice[best]);
  }
  return sample;
}

std::string nameOf(const PlanConfig& p) {
  const std::string recomputed = p.recompute ? "all" : std::to_string(p.recomputeLayers);
  const std::string gateUp =
      p.gateUp == GateUp::kept ? "" : " g" + std::to_string(static_cast<int>(p.gateUp));
  return "b" + std::to_string(p.microBatchSize) + " n" + std::to_string(p.microBatches) + " a" + recomputed +
         gateUp + " pp" + std::to_string(p.pipelineParallel) + " v" + std::to_string(p.pipelineChunks) +
         " dp" + std::to_string(p.dataParallel) + " tp" + std::to_string(p.tensorParallel) + " sp" +
         std::to_string(p.sequenceParallel) + " c" + std::to_string(p.contextParallel) + " ps" +
         std::to_string(p.parameterSharding) + " gs" + std::to_string(p.gradientSharding) + " oss" +
         std::to_string(p.optimizerStateSharding) + " o" +
         std::to_string(static_cast<int>(p.forwardOverlap)) +
         std::to_string(static_cast<int>(p.backwardOverlap));
}

std::string orderKeyOf(const PlanConfig& p, bool tiedEmbeddings) {
  std::string key = "dp" + std::to_string(p.dataParallel) + " tp" + std::to_string(p.tensorParallel) + " sp" +
                    std::to_string(p.sequenceParallel) + " c" + std::to_string(p.contextParallel) + " b" +
                    std::to_string(p.microBatchSize) + " n" + std::to_string(p.microBatches);
  const bool ends = tiedEmbeddings && p.pipelineParallel > 1;
  if (ends) key += " both ends";
  if (p.microBatches == 1 && (ends || !tiedEmbeddings)) return key;
  if (p.gradientSharding > 1 || p.parameterSharding == p.replicaRanks()) return key + " ranks first";
  return key + " ps" + std::to_string(p.parameterSharding);
}

std::string roundedOrderKeyOf(const PlanConfig& p, bool tiedEmbeddings) {
  const int ranks = p.replicaRanks();
  std::string key = orderKeyOf(p, tiedEmbeddings) + ", groups of";
  for (const int group : {p.parameterSharding, p.optimizerStateSharding,
                          ranks / (p.parameterSharding * p.optimizerStateSharding)}) {
    if (group > 1) key += " " + std::to_string(group);
  }
  return key;
}

}  // namespace internevo::trainer::testing
