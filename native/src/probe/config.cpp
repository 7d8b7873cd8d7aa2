#include "probe/config.h"

#include <algorithm>
#include <map>
#include <set>

#include "protocol/protocol.h"

namespace internevo::probe {

namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 40;

struct Refused {
  Problem problem;
};

[[noreturn]] void refuse(const std::string& field, const Json& value, const std::string& what,
                         const std::string& remedy) {
  throw Refused{{StatusCode::badConfig, field + ": " + what, field, value, remedy}};
}

/// One object of the document; every member must be asked for.
class Reader {
 public:
  Reader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object())
      refuse(path_.empty() ? "config" : path_, object, "is not an object", "give an object");
  }

  std::string field(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }

  const Json& at(const std::string& name) {
    known_.insert(name);
    const auto found = object_.find(name);
    if (found == object_.end()) refuse(field(name), nullptr, "is missing", "add it");
    return *found;
  }
  bool has(const std::string& name) const { return object_.contains(name); }
  std::int64_t integer(const std::string& name, std::int64_t lowest, std::int64_t highest) {
    const Json& value = at(name);
    const bool fits = value.is_number_integer() && value >= lowest && value <= highest;
    if (!fits) {
      refuse(field(name), value,
             "is not an integer from " + std::to_string(lowest) + " to " + std::to_string(highest),
             "give such an integer");
    }
    return value.get<std::int64_t>();
  }
  double positive(const std::string& name) {
    const Json& value = at(name);
    if (!value.is_number() || !(value.get<double>() > 0)) {
      refuse(field(name), value, "is not a positive number", "give a positive number");
    }
    return value.get<double>();
  }
  std::string oneOf(const std::string& name, const std::vector<std::string>& allowed) {
    const Json& value = at(name);
    if (!value.is_string() || std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
      std::string all;
      for (const std::string& each : allowed) all += (all.empty() ? "" : ", ") + each;
      refuse(field(name), value, "is not known", "use one of " + all);
    }
    return value.get<std::string>();
  }
  const Json& array(const std::string& name) {
    const Json& value = at(name);
    if (!value.is_array()) refuse(field(name), value, "is not an array", "give an array");
    return value;
  }
  void finish() const {
    for (const auto& [name, value] : object_.items()) {
      if (known_.count(name) == 0) refuse(field(name), value, "is not known", "remove it");
    }
  }

 private:
  const Json& object_;
  std::string path_;
  std::set<std::string> known_;
};

std::string indexed(const std::string& name, std::size_t index) {
  return name + "[" + std::to_string(index) + "]";
}

std::vector<std::vector<int>> parseGroups(Reader& reader, int worldSize) {
  std::vector<std::vector<int>> groups;
  std::set<int> seen;
  for (const Json& group : reader.array("groups")) {
    auto& ranks = groups.emplace_back();
    if (!group.is_array())
      refuse(reader.field("groups"), group, "holds what is not an array", "give arrays of ranks");
    for (const Json& rank : group) {
      if (!rank.is_number_integer() || rank < 0 || rank >= worldSize) {
        refuse(reader.field("groups"), rank, "names a rank that does not run",
               "use ranks 0 to " + std::to_string(worldSize - 1) + " or start more");
      }
      if (!seen.insert(rank.get<int>()).second) {
        refuse(reader.field("groups"), rank, "names a rank twice", "put every rank in one group at most");
      }
      ranks.push_back(rank.get<int>());
    }
    if (ranks.empty() || ranks.size() != groups.front().size()) {
      refuse(reader.field("groups"), group, "has groups of different or no size",
             "make all groups of one size");
    }
  }
  if (groups.empty()) refuse(reader.field("groups"), Json::array(), "is empty", "give at least one group");
  return groups;
}

CollectivePoint parseCollective(const Json& json, const std::string& path, int worldSize) {
  static const std::map<std::string, Collective> kOps{
      {"all-reduce", Collective::allReduce},         {"all-gather", Collective::allGather},
      {"reduce-scatter", Collective::reduceScatter}, {"all-to-all", Collective::allToAll},
      {"broadcast", Collective::broadcast},          {"point-to-point", Collective::pointToPoint}};
  Reader reader(json, path);
  CollectivePoint point;
  point.opName = reader.oneOf(
      "op", {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "point-to-point"});
  point.op = kOps.at(point.opName);
  point.bytes = reader.integer("bytes", 1, kLargest);
  point.placement = reader.oneOf("placement", {"intra-node", "inter-node", "mixed"});
  point.groups = parseGroups(reader, worldSize);
  if (point.op == Collective::pointToPoint && point.groups.front().size() != 2) {
    refuse(reader.field("groups"), json.at("groups"),
           "has groups of " + std::to_string(point.groups.front().size()) + " ranks for messages between two",
           "make groups of two ranks");
  }
  reader.finish();
  return point;
}

struct ModuleKind {
  std::vector<std::string> passes;
  std::vector<std::pair<const char*, std::int64_t ModulePoint::*>> sizes;
};

const std::map<std::string, ModuleKind>& moduleKinds() {
  using M = ModulePoint;
  static const std::vector<std::string> kBoth{"forward", "backward"}, kUpdate{"update"};
  static const std::map<std::string, ModuleKind> kinds{
      {"linear", {kBoth, {{"rows", &M::rows}, {"inputs", &M::inputs}, {"outputs", &M::outputs}}}},
      {"attention",
       {kBoth,
        {{"batch", &M::batch},
         {"sequence", &M::sequence},
         {"heads", &M::heads},
         {"kvHeads", &M::kvHeads},
         {"headSize", &M::headSize}}}},
      {"rmsnorm", {kBoth, {{"rows", &M::rows}, {"width", &M::width}}}},
      {"swiglu", {kBoth, {{"rows", &M::rows}, {"width", &M::width}}}},
      {"residual-add", {kBoth, {{"rows", &M::rows}, {"width", &M::width}}}},
      {"rope", {kBoth, {{"rows", &M::rows}, {"heads", &M::heads}, {"headSize", &M::headSize}}}},
      {"embedding", {kBoth, {{"rows", &M::rows}, {"width", &M::width}, {"vocabulary", &M::vocabulary}}}},
      {"head-loss",
       {{"forward-backward"}, {{"rows", &M::rows}, {"width", &M::width}, {"vocabulary", &M::vocabulary}}}},
      {"adamw", {kUpdate, {{"elements", &M::elements}}}},
      {"squared-norm", {kUpdate, {{"elements", &M::elements}}}},
      {"accumulate", {kUpdate, {{"elements", &M::elements}}}}};
  return kinds;
}

ModulePoint parseModule(const Json& json, const std::string& path) {
  Reader reader(json, path);
  std::vector<std::string> names;
  for (const auto& [name, kind] : moduleKinds()) names.push_back(name);
  ModulePoint point;
  point.shape = json;
  point.module = reader.oneOf("module", names);
  const ModuleKind& kind = moduleKinds().at(point.module);
  point.pass = reader.oneOf("pass", kind.passes);
  point.precision =
      reader.oneOf("precision", {"fp32", "bf16"}) == "bf16" ? DataType::bfloat16 : DataType::float32;
  for (const auto& [name, member] : kind.sizes) point.*member = reader.integer(name, 1, kLargest);
  if (point.module == "attention" && point.heads % point.kvHeads != 0) {
    refuse(reader.field("kvHeads"), point.kvHeads, "does not divide heads", "use a divisor of heads");
  }
  if (point.module == "rope" && point.headSize % 2 != 0) {
    refuse(reader.field("headSize"), point.headSize, "is odd", "use an even size");
  }
  reader.finish();
  return point;
}

Config parseDocument(const Json& json, int worldSize) {
  Reader reader(json, "");
  Config config;
  reader.integer("protocol", protocol::version, protocol::version);
  if (reader.has("deviceKind")) {
    config.deviceKind =
        reader.oneOf("deviceKind", {"cpu", "cuda"}) == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
  }
  config.threadsPerRank = static_cast<int>(reader.integer("threadsPerRank", 1, 1024));
  config.minimumSamples = static_cast<int>(reader.integer("minimumSamples", 1, 100000));
  config.maximumSeconds = reader.positive("maximumSeconds");
  config.targetRelativeSpread = reader.positive("targetRelativeSpread");
  const Json& collectives = reader.array("collectives");
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    config.collectives.push_back(parseCollective(collectives[i], indexed("collectives", i), worldSize));
  }
  const Json& modules = reader.array("modules");
  for (std::size_t i = 0; i < modules.size(); ++i) {
    config.modules.push_back(parseModule(modules[i], indexed("modules", i)));
  }
  const Json& overlaps = reader.array("overlaps");
  for (std::size_t i = 0; i < overlaps.size(); ++i) {
    const std::string path = indexed("overlaps", i);
    Reader pair(overlaps[i], path);
    config.overlaps.push_back({parseModule(pair.at("module"), path + ".module"),
                               parseCollective(pair.at("collective"), path + ".collective", worldSize)});
    pair.finish();
  }
  const Json& device = reader.at("device");
  if (!device.is_boolean()) refuse("device", device, "is not true or false", "give true or false");
  config.device = device.get<bool>();
  reader.finish();
  return config;
}

}  // namespace

bool parseConfig(const std::string& text, int worldSize, Config* config, Problem* problem) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    *problem = {StatusCode::badConfig, "the configuration is not JSON", "config", nullptr,
                "give one JSON object"};
    return false;
  }
  try {
    *config = parseDocument(json, worldSize);
  } catch (const Refused& refused) {
    *problem = refused.problem;
    return false;
  }
  return true;
}

}  // namespace internevo::probe
