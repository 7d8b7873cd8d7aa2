#include "layer_program/layer_program.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

using Json = nlohmann::json;
using Names = std::vector<std::string>;

[[noreturn]] void refuse(const std::string& what) {
  throw Failure(StatusCode::internal, "layer program: " + what);
}

template <typename Value>
using Words = std::vector<std::pair<const char*, Value>>;

const Words<Cut> kCuts = {
    {"whole", Cut::whole}, {"equal", Cut::equal}, {"shared", Cut::shared}, {"roundedUp", Cut::roundedUp}};
const Words<RowsOf> kRows = {{"tokens", RowsOf::tokens},
                             {"block", RowsOf::block},
                             {"attention", RowsOf::attention},
                             {"once", RowsOf::once}};
const Words<Fate> kFates = {
    {"stream", Fate::stream}, {"kept", Fate::kept}, {"again", Fate::again}, {"workspace", Fate::workspace}};
const Words<TensorKind> kKinds = {
    {"matrix", TensorKind::matrix}, {"gain", TensorKind::gain}, {"bias", TensorKind::bias}};
const Words<Initial> kInitials = {{"normal", Initial::normal},
                                  {"normalByDepth", Initial::normalByDepth},
                                  {"ones", Initial::ones},
                                  {"zeros", Initial::zeros}};
const Words<bool ProgramFlags::*> kFlags = {{"tiedEmbeddings", &ProgramFlags::tiedEmbeddings},
                                            {"tensorParallel", &ProgramFlags::tensorParallel},
                                            {"ulysses", &ProgramFlags::ulysses},
                                            {"contextParallel", &ProgramFlags::contextParallel},
                                            {"queryKeyNorm", &ProgramFlags::queryKeyNorm},
                                            {"queryKeyValueBias", &ProgramFlags::queryKeyValueBias},
                                            {"ownHeadSize", &ProgramFlags::ownHeadSize},
                                            {"gateUpAgain", &ProgramFlags::gateUpAgain},
                                            {"gateUpHost", &ProgramFlags::gateUpHost}};
using SizeOf = std::int64_t (*)(const ModelConfig&);
const Words<SizeOf> kSizes = {{"hiddenSize", [](const ModelConfig& m) { return m.hiddenSize; }},
                              {"heads", [](const ModelConfig& m) { return m.heads; }},
                              {"kvHeads", [](const ModelConfig& m) { return m.kvHeads; }},
                              {"headSize", [](const ModelConfig& m) { return m.headSize(); }},
                              {"ffnHiddenSize", [](const ModelConfig& m) { return m.ffnHiddenSize; }},
                              {"vocabularySize", [](const ModelConfig& m) { return m.vocabularySize; }}};

template <typename Value>
Value wordOf(const Words<Value>& words, const std::string& word, const std::string& where) {
  for (const auto& [name, value] : words) {
    if (word == name) return value;
  }
  std::string known;
  for (const auto& [name, value] : words) known += std::string(known.empty() ? "" : ", ") + name;
  refuse(where + " is \"" + word + "\"; use one of " + known);
}

std::string text(const Json& object, const char* member, const std::string& otherwise = "") {
  return object.value(member, otherwise);
}
Names names(const Json& object, const char* member) { return object.value(member, Names()); }

void readCondition(const Json& object, ProgramCondition* condition) {
  condition->when = text(object, "when"), condition->unless = text(object, "unless");
}

std::vector<ProgramUnit> unitsOf(const Json& list) {
  std::vector<ProgramUnit> units;
  for (const Json& each : list) {
    ProgramUnit unit;
    readCondition(each, &unit);
    unit.name = each.at("name"), unit.block = text(each, "block");
    units.push_back(std::move(unit));
  }
  return units;
}

std::vector<ProgramTensor> tensorsOf(const Json& list) {
  std::vector<ProgramTensor> tensors;
  for (const Json& each : list) {
    ProgramTensor tensor;
    readCondition(each, &tensor);
    tensor.name = each.at("name"), tensor.unit = each.at("unit"), tensor.huggingFace = each.at("huggingFace");
    tensor.kind = wordOf(kKinds, each.at("kind"), tensor.name + ".kind");
    tensor.rows = text(each, "rows"), tensor.columns = each.at("columns");
    tensor.initial = wordOf(kInitials, each.at("initial"), tensor.name + ".initial");
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

ProgramValue valueOf(const Json& each) {
  ProgramValue value;
  readCondition(each, &value);
  value.name = each.at("name"), value.width = names(each, "width");
  value.fate = wordOf(kFates, each.at("fate"), value.name + ".fate");
  value.againWhen = text(each, "againWhen"), value.hostWhen = text(each, "hostWhen");
  value.rows = wordOf(kRows, each.at("rows"), value.name + ".rows");
  value.float32 = text(each, "type") == "float32";
  value.otherwise = text(each, "otherwise"), value.block = text(each, "block");
  value.passes = names(each, "passes");
  return value;
}

/// "linear {pass} down" of a pass.
std::string labelOf(std::string label, const char* pass) {
  const std::string place = "{pass}";
  const std::size_t at = label.find(place);
  return at == std::string::npos ? label : label.replace(at, place.size(), pass);
}

std::optional<ProgramCollective> collectiveOf(const Json& each, const char* member) {
  if (!each.contains(member)) return std::nullopt;
  ProgramCollective one;
  readCondition(each[member], &one);
  one.collective = each[member].at("collective"), one.of = names(each[member], "of");
  return one;
}

ProgramOperator operatorOfJson(const Json& each) {
  ProgramOperator one;
  readCondition(each, &one);
  one.name = each.at("name"), one.kind = each.at("kind"), one.unit = each.at("unit");
  one.forwardLabel = labelOf(text(each, "label"), "forward");
  one.backwardLabel = labelOf(text(each, "label"), "backward");
  one.parameters = names(each, "parameters");
  one.reads = names(each, "reads"), one.writes = names(each, "writes");
  one.before = collectiveOf(each, "before"), one.behind = collectiveOf(each, "behind");
  return one;
}

template <typename List>
auto findIn(const List& list, const std::string& name) {
  return std::find_if(list.begin(), list.end(), [&](const auto& each) { return each.name == name; });
}

template <typename List>
const auto& elementOf(const List& list, const std::string& name, const char* what) {
  const auto found = findIn(list, name);
  if (found == list.end()) refuse(std::string("there is no ") + what + " \"" + name + "\"");
  return *found;
}

void checkCondition(const ProgramCondition& condition, const std::string& where) {
  for (const std::string& flag : {condition.when, condition.unless}) {
    if (!flag.empty()) wordOf(kFlags, flag, "the condition of " + where);
  }
}

}  // namespace

ProgramFlags flagsOf(const ModelConfig& model, const PlanConfig& plan) {
  return {.tiedEmbeddings = model.tiedEmbeddings,
          .tensorParallel = plan.tensorParallel > 1,
          .ulysses = plan.ulysses(),
          .contextParallel = plan.contextParallel > 1,
          .queryKeyNorm = model.queryKeyNorm,
          .queryKeyValueBias = model.queryKeyValueBias,
          .ownHeadSize = model.queryWidth() != model.hiddenSize,
          .gateUpAgain = plan.gateUp == GateUp::again,
          .gateUpHost = plan.gateUp == GateUp::host};
}

bool holds(const ProgramCondition& condition, const ProgramFlags& flags) {
  const auto is = [&](const std::string& flag) { return flags.*wordOf(kFlags, flag, "a condition"); };
  return (condition.when.empty() || is(condition.when)) &&
         (condition.unless.empty() || !is(condition.unless));
}

Fate fateOf(const ProgramValue& value, const ProgramFlags& flags) {
  const auto is = [&](const std::string& flag, const char* member) {
    return !flag.empty() && flags.*wordOf(kFlags, flag, member);
  };
  if (is(value.againWhen, "againWhen")) return Fate::again;
  return is(value.hostWhen, "hostWhen") ? Fate::host : value.fate;
}

LayerProgram LayerProgram::parse(const std::string& programText) {
  LayerProgram program;
  try {
    const Json json = Json::parse(programText);
    program.name_ = json.at("name");
    for (const Json& each : json.at("dimensions")) {
      program.dimensions_.push_back({each.at("name"), text(each, "of"), text(each, "times"),
                                     wordOf(kCuts, each.at("cut"), "a dimension's cut")});
    }
    program.units_ = unitsOf(json.at("units")), program.tensors_ = tensorsOf(json.at("tensors"));
    for (const Json& each : json.at("values")) program.values_.push_back(valueOf(each));
    for (const Json& each : json.at("operators")) program.operators_.push_back(operatorOfJson(each));
    program.endUnits_ = unitsOf(json.at("ends").at("units"));
    program.endTensors_ = tensorsOf(json.at("ends").at("tensors"));
  } catch (const Json::exception& error) {
    refuse(error.what());
  }
  program.check();
  return program;
}

void LayerProgram::check() const {
  for (const ProgramDimension& each : dimensions_) {
    for (const std::string& size : {each.of, each.times}) {
      if (!size.empty()) wordOf(kSizes, size, "dimension " + each.name);
    }
  }
  const auto tensors = [&](const std::vector<ProgramTensor>& list, const std::vector<ProgramUnit>& owners) {
    for (const ProgramTensor& each : list) {
      elementOf(owners, each.unit, "unit");
      dimension(each.columns);
      if (!each.rows.empty()) dimension(each.rows);
      checkCondition(each, each.name);
    }
  };
  tensors(tensors_, units_), tensors(endTensors_, endUnits_);
  for (const ProgramUnit& each : endUnits_) checkCondition(each, each.name);
  for (const ProgramValue& each : values_) {
    for (const std::string& name : each.width) dimension(name);
    if (!each.otherwise.empty()) value(each.otherwise);
    checkCondition(each, each.name);
    if (each.fate == Fate::kept && each.block.empty())
      refuse(each.name + " is kept and has no block; name it");
    if (!each.hostWhen.empty()) {
      wordOf(kFlags, each.hostWhen, each.name + ".hostWhen");
      if (each.fate != Fate::kept) refuse(each.name + " has hostWhen; give it the fate kept");
    }
    if (each.againWhen.empty()) continue;
    wordOf(kFlags, each.againWhen, each.name + ".againWhen");
    if (each.fate != Fate::kept || each.passes.empty())
      refuse(each.name + " has againWhen; give it the fate kept, and the passes that use it");
  }
  for (const ProgramOperator& each : operators_) {
    unitPlace(each.unit);
    checkCondition(each, each.name);
    for (const std::string& name : each.parameters) elementOf(tensors_, name, "tensor");
    for (const std::string& name : each.reads) value(name);
    for (const std::string& name : each.writes) value(name);
    for (const auto& collective : {each.before, each.behind}) {
      if (!collective) continue;
      checkCondition(*collective, each.name);
      for (const std::string& name : collective->of) dimension(name);
    }
  }
}

int LayerProgram::unitPlace(const std::string& name) const {
  return static_cast<int>(&elementOf(units_, name, "unit") - units_.data());
}

const ProgramValue& LayerProgram::value(const std::string& name) const {
  return elementOf(values_, name, "value");
}

const ProgramValue* LayerProgram::presentValue(const std::string& name, const ProgramFlags& flags) const {
  const ProgramValue& wanted = value(name);
  if (holds(wanted, flags)) return &wanted;
  return wanted.otherwise.empty() ? nullptr : presentValue(wanted.otherwise, flags);
}

const ProgramOperator& LayerProgram::operatorOf(const std::string& name) const {
  return elementOf(operators_, name, "operator");
}

bool LayerProgram::runsAgain(const ProgramOperator& one, const ProgramFlags& flags) const {
  return holds(one, flags) && std::any_of(one.writes.begin(), one.writes.end(), [&](const std::string& name) {
           const ProgramValue& written = value(name);
           return written.fate == Fate::kept && fateOf(written, flags) == Fate::again;
         });
}

const ProgramDimension& LayerProgram::dimension(const std::string& name) const {
  return elementOf(dimensions_, name, "dimension");
}

std::int64_t LayerProgram::count(const ModelConfig& model, const std::string& name, int ranks) const {
  const ProgramDimension& each = dimension(name);
  if (each.of.empty()) return 1;
  const std::int64_t whole = wordOf(kSizes, each.of, "dimension " + name)(model);
  switch (each.cut) {
    case Cut::whole: return whole;
    case Cut::equal: return whole / ranks;
    case Cut::shared: return std::max<std::int64_t>(1, whole / ranks);
    case Cut::roundedUp: break;
  }
  return (whole + ranks - 1) / ranks;
}

std::int64_t LayerProgram::size(const ModelConfig& model, const std::string& name, int ranks) const {
  const std::string& times = dimension(name).times;
  return count(model, name, ranks) * (times.empty() ? 1 : wordOf(kSizes, times, "dimension " + name)(model));
}

std::int64_t LayerProgram::width(const ModelConfig& model, const Names& dimensions, int ranks) const {
  std::int64_t sum = 0;
  for (const std::string& name : dimensions) sum += size(model, name, ranks);
  return sum;
}

const LayerProgram& layerProgram(const ModelConfig&, std::int64_t) {
  static const LayerProgram decoder = LayerProgram::parse(decoderText());
  return decoder;
}

}  // namespace internevo::trainer
