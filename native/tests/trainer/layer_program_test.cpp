// The layer program, and the order in which the trainer runs its operators.
#include "layer_program/layer_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "mpi_session.h"
#include "support.h"
#include "trainer/failure.h"
#include "trainer/trainer.h"

namespace internevo::trainer::testing {
namespace {

using Names = std::vector<std::string>;

constexpr const char* kGather = "all-gather activations";
constexpr const char* kScatter = "reduce-scatter activations";
constexpr const char* kExchange = "all-to-all of heads and sequence";

// ---- the order -----------------------------------------------------------------------------------------------------

/// What a timeline shows of the collective of an operator.
void addCollective(const std::optional<ProgramCollective>& collective, bool backward,
                   const ProgramFlags& flags, Names* events) {
  if (!collective || !holds(*collective, flags)) return;
  if (collective->collective == "all-to-all") {
    events->insert(events->end(), collective->of.size(), kExchange);
  } else {
    events->push_back((collective->collective == "all-gather") == backward ? kScatter : kGather);
  }
}

bool isGather(const std::optional<ProgramCollective>& collective, const ProgramFlags& flags) {
  return collective && holds(*collective, flags) && collective->collective == "all-gather";
}

/// An all-gather goes on inside its operator, an all-to-all before or behind it.
void addForward(const ProgramOperator& each, const ProgramFlags& flags, Names* events) {
  const bool inside = isGather(each.before, flags);
  if (!holds(each, flags)) return;
  if (!inside) addCollective(each.before, false, flags, events);
  if (!each.forwardLabel.empty()) events->push_back(each.forwardLabel);
  if (inside) events->push_back(kGather);
  addCollective(each.behind, false, flags, events);
}

void addBackward(const ProgramOperator& each, const ProgramFlags& flags, Names* events) {
  if (!holds(each, flags)) return;
  const bool exchanges = each.behind && each.behind->collective == "all-to-all";
  if (exchanges) addCollective(each.behind, true, flags, events);
  if (!each.backwardLabel.empty()) events->push_back(each.backwardLabel);
  if (!exchanges) addCollective(each.behind, true, flags, events);
  if (isGather(each.before, flags))
    events->push_back(kGather);  // its input again, for the gradient of the weight
  addCollective(each.before, true, flags, events);
}

Names forwardOf(const LayerProgram& program, const ProgramFlags& flags, bool onlyKept) {
  const auto& operators = program.operators();
  std::size_t count = operators.size();
  const auto keeps = [&](const ProgramOperator& each) {
    return std::any_of(each.writes.begin(), each.writes.end(),
                       [&](const std::string& name) { return program.value(name).fate == Fate::kept; });
  };
  while (onlyKept && !keeps(operators[count - 1])) --count;
  Names events;
  for (std::size_t i = 0; i < count; ++i) addForward(operators[i], flags, &events);
  return events;
}

const std::string& blockOf(const LayerProgram& program, const ProgramOperator& one) {
  return program.units()[static_cast<std::size_t>(program.unitPlace(one.unit))].block;
}

/// A block begins with the operators that the plan makes run again, unless the layer has just been recomputed whole.
Names backwardOf(const LayerProgram& program, const ProgramFlags& flags, bool recomputed) {
  Names events;
  const auto& operators = program.operators();
  std::string block;
  for (auto each = operators.rbegin(); each != operators.rend(); ++each) {
    const bool begins = blockOf(program, *each) != block;
    block = blockOf(program, *each);
    for (const ProgramOperator& one : operators) {
      if (begins && !recomputed && blockOf(program, one) == block && program.runsAgain(one, flags))
        addForward(one, flags, &events);
    }
    addBackward(*each, flags, &events);
  }
  return events;
}

/// One step of one micro-batch through all layers, from the program.
Names stepOf(const Config& config) {
  const ProgramFlags flags = flagsOf(config.model, config.plan);
  const bool tensor = flags.tensorParallel;
  Names events;
  const auto add = [&](const Names& more) { events.insert(events.end(), more.begin(), more.end()); };
  add({"embedding forward"});
  if (tensor) add({kScatter});
  for (std::int64_t layer = 0; layer < config.model.layers; ++layer)
    add(forwardOf(layerProgram(config.model, layer), flags, false));
  if (tensor) add({kGather});
  add({"head and loss"});
  if (tensor) add({kScatter});
  for (std::int64_t layer = config.model.layers; layer-- > 0;) {
    const LayerProgram& program = layerProgram(config.model, layer);
    const bool recomputed = layer < config.plan.recomputedOf(config.model.layers);
    if (recomputed) add(forwardOf(program, flags, true));
    add(backwardOf(program, flags, recomputed));
  }
  add({"embedding backward"});
  if (tensor) add({kGather});
  return events;
}

/// The same from the timeline of a step.
Names recordedStep(const Config& config) {
  Activity activity(10000);
  std::vector<int> everyRank(static_cast<std::size_t>(test::session().worldSize()));
  std::iota(everyRank.begin(), everyRank.end(), 0);
  Trainer trainer(config, test::session().rank(), everyRank, &activity);
  trainer.initializeWeights();
  activity.record(true);
  trainer.step(1);
  activity.record(false);
  std::vector<ActivityEvent> events(activity.events(), activity.events() + activity.eventCount());
  std::stable_sort(events.begin(), events.end(), [](const ActivityEvent& a, const ActivityEvent& b) {
    return a.startNanoseconds < b.startNanoseconds;
  });
  std::set<std::string> known = {
      kGather, kScatter, kExchange, "embedding forward", "head and loss", "embedding backward"};
  for (const ProgramOperator& each : layerProgram(config.model, 0).operators())
    known.insert({each.forwardLabel, each.backwardLabel});
  Names names;
  for (const ActivityEvent& event : events) {
    if (known.count(event.name) > 0) names.emplace_back(event.name);
  }
  return names;
}

TEST(LayerProgram, IsRunInItsOrder) {
  const int ranks = test::session().worldSize();
  struct Case {
    int recomputed;
    GateUp gateUp;
  };
  for (const auto& [recomputed, gateUp] :
       {Case{0, GateUp::kept}, Case{1, GateUp::kept}, Case{0, GateUp::again}, Case{1, GateUp::again},
        Case{0, GateUp::host}, Case{1, GateUp::host}}) {
    std::vector<PlanConfig> plans(
        3);  // ranks that share a batch, a sequence by heads, and a sequence by tensor parallelism
    plans[0].dataParallel = plans[1].sequenceParallel = plans[2].sequenceParallel = ranks;
    plans[2].tensorParallel = ranks;
    for (PlanConfig& plan : plans) {
      plan.recomputeLayers = recomputed, plan.gateUp = gateUp;
      const TemporaryDirectory directory;
      writeTokenFile(directory.file("tokens"), sampleTokens(1500, 61), 61);
      Config config = smallConfig(directory.file("tokens"));
      config.plan = plan, config.mesh = meshOf(plan);
      for (const ModelConfig& model : {config.model, qwen2Model(), qwen3Model()}) {
        config.model = model;
        validatePlan(config);
        EXPECT_EQ(recordedStep(config), stepOf(config))
            << "tensor ranks " << plan.tensorParallel << ", sequence ranks " << plan.sequenceParallel
            << ", recomputed layers " << recomputed << ", gate and up " << static_cast<int>(gateUp)
            << ", model " << modelJson(model);
      }
    }
  }
}

TEST(LayerProgram, SaysWhatAPlanMakesAgainInsteadOfKeepingIt) {
  const LayerProgram& program = layerProgram(smallConfig("d.tokens").model, 0);
  ProgramFlags kept, again;
  again.gateUpAgain = true;
  Names values, operators;
  for (const ProgramValue& each : program.values()) {
    if (fateOf(each, kept) == fateOf(each, again)) continue;
    values.push_back(each.name);
    EXPECT_EQ(fateOf(each, kept), Fate::kept);
    EXPECT_EQ(fateOf(each, again), Fate::again);
  }
  for (const ProgramOperator& each : program.operators()) {
    EXPECT_FALSE(program.runsAgain(each, kept)) << each.name;
    if (program.runsAgain(each, again)) operators.push_back(each.name);
  }
  EXPECT_EQ(values, Names{"gateUp"});
  EXPECT_EQ(operators, Names{"gate and up"});
}

// ---- the reader ----------------------------------------------------------------------------------------------------

std::string refusalOf(const std::string& from, const std::string& to) {
  std::string text = decoderText();
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  try {
    LayerProgram::parse(text);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

TEST(LayerProgram, ThatIsWrongIsRefusedByName) {
  const auto expect = [](const char* from, const char* to, const char* said) {
    EXPECT_NE(refusalOf(from, to).find(said), std::string::npos) << refusalOf(from, to);
  };
  expect("\"unit\": \"qkv\"", "\"unit\": \"kqv\"", "there is no unit \"kqv\"");
  expect("\"cut\": \"shared\"", "\"cut\": \"halved\"", "is \"halved\"; use one of whole, equal, shared");
  expect("\"fate\": \"again\"", "\"fate\": \"lost\"", "norm.fate is \"lost\"; use one of stream, kept");
  expect("\"rows\": \"query\"", "\"rows\": \"wide\"", "there is no dimension \"wide\"");
  expect("\"when\": \"ulysses\"", "\"when\": \"sometimes\"", "is \"sometimes\"; use one of tiedEmbeddings");
  expect("\"writes\": [\"gateUp\"]", "\"writes\": [\"nothing\"]", "there is no value \"nothing\"");
  expect("\"reads\": [\"gateUp\"]", "\"reads\": \"gateUp\"", "layer program: ");
  expect("\"againWhen\": \"gateUpAgain\"", "\"againWhen\": \"tomorrow\"", "gateUp.againWhen is \"tomorrow\"");
  expect("\"hostWhen\": \"gateUpHost\"", "\"hostWhen\": \"tomorrow\"", "gateUp.hostWhen is \"tomorrow\"");
  expect("\"fate\": \"again\"", "\"fate\": \"again\", \"againWhen\": \"gateUpAgain\"", "norm has againWhen");
  expect("\"name\": \"decoder\",", "", "name");
}

}  // namespace
}  // namespace internevo::trainer::testing
