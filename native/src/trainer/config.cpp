#include "trainer/config.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "protocol/protocol.h"
#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& field, const std::string& valueJson, const std::string& message,
                         const std::string& remedy) {
  throw Failure(Problem{StatusCode::badConfig,
                        field + (valueJson.empty() ? "" : " " + valueJson) + " " + message, field, valueJson,
                        remedy});
}

/// An object of the document whose members are all read; what is left over is refused by name.
class Reader {
 public:
  Reader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object()) {
      refuse(path_.empty() ? "configuration" : path_, shorten(object), "is not an object",
             "give a JSON object");
    }
  }

  const Json& at(const char* name) {
    known_.insert(name);
    const auto found = object_.find(name);
    if (found == object_.end())
      refuse(field(name), "", "is missing", "add the member; null where it may be absent");
    return *found;
  }

  std::int64_t integer(const char* name, std::int64_t minimum,
                       std::int64_t maximum = std::numeric_limits<std::int64_t>::max()) {
    const Json& value = at(name);
    const bool fits = value.is_number_unsigned()
                          ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(maximum)
                          : value.is_number_integer();
    if (!fits || value.get<std::int64_t>() < minimum || value.get<std::int64_t>() > maximum) {
      refuse(field(name), shorten(value), "is not an integer in range",
             "give an integer from " + std::to_string(minimum) + " to " + std::to_string(maximum));
    }
    return value.get<std::int64_t>();
  }

  double number(const char* name, double minimum, bool minimumAllowed, double maximum) {
    const Json& value = at(name);
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!(number > minimum || (minimumAllowed && number == minimum)) || number > maximum) {
      std::ostringstream range;
      range << "give a number " << (minimumAllowed ? "from " : "above ") << minimum << " up to " << maximum;
      refuse(field(name), shorten(value), "is not a number in range", range.str());
    }
    return number;
  }

  bool boolean(const char* name) {
    const Json& value = at(name);
    if (!value.is_boolean()) refuse(field(name), shorten(value), "is not a boolean", "give true or false");
    return value.get<bool>();
  }

  std::string text(const char* name) {
    const Json& value = at(name);
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      refuse(field(name), shorten(value), "is not a text", "give a text that is not empty");
    }
    return value.get<std::string>();
  }

  /// Index of the text among the choices.
  int choice(const char* name, std::initializer_list<const char*> choices) {
    const Json& value = at(name);
    int index = 0;
    std::string remedy;
    for (const char* each : choices) {
      if (value.is_string() && value.get_ref<const std::string&>() == each) return index;
      remedy += (index++ == 0 ? "give " : " or ") + Json(each).dump();
    }
    refuse(field(name), shorten(value), "is not one of the choices", remedy);
  }

  bool has(const char* name) const { return object_.contains(name); }
  Reader object(const char* name) { return {at(name), field(name)}; }
  /// The objects of a list with at least one.
  std::vector<Reader> objects(const char* name) {
    const Json& list = at(name);
    if (!list.is_array() || list.empty())
      refuse(field(name), shorten(list), "is not a list of objects", "give a list with at least one object");
    std::vector<Reader> all;
    for (std::size_t i = 0; i < list.size(); ++i)
      all.emplace_back(list[i], field(name) + "." + std::to_string(i));
    return all;
  }
  bool isNull(const char* name) { return at(name).is_null(); }
  std::string field(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }

  /// Call when every member has been read.
  void finish() const {
    for (const auto& [name, value] : object_.items()) {
      if (known_.count(name) == 0) refuse(field(name), shorten(value), "is not a known member", "remove it");
    }
  }

  static std::string shorten(const Json& value) {
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() <= 200
               ? text
               : Json(text.substr(0, 200) + "...").dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  const Json& object_;
  std::string path_;
  std::set<std::string> known_;
};

constexpr std::int64_t kSize = std::int64_t{1} << 31;
constexpr std::int64_t kMostShares = 1 << 16;  ///< draws after which a mixture's pattern repeats

/// Whether a document may leave a field out. One that may is written only where it is not the default: documents and
/// checkpoints from before it existed stay what they were.
enum class Presence { always, unlessDefault };

/// Shows the visitor every field of a model, in the order of documents: its name, its member, and its bounds.
template <typename Visitor>
void visitModel(Visitor&& visit) {
  using M = ModelConfig;
  using enum Presence;
  visit.integer("hiddenSize", &M::hiddenSize, 1, 1 << 20, always);
  visit.integer("layers", &M::layers, 1, 10000, always);
  visit.integer("heads", &M::heads, 1, 65536, always);
  visit.integer("kvHeads", &M::kvHeads, 1, 65536, always);
  visit.integer("ffnHiddenSize", &M::ffnHiddenSize, 1, 1 << 22, always);
  visit.integer("vocabularySize", &M::vocabularySize, 2, kSize - 1, always);
  visit.boolean("tiedEmbeddings", &M::tiedEmbeddings, always);
  visit.number("ropeTheta", &M::ropeTheta, 1e12, always);
  visit.number("normEpsilon", &M::normEpsilon, 1, always);
  visit.number("initStandardDeviation", &M::initStandardDeviation, 10, always);
  visit.integer("headSize", &M::givenHeadSize, 2, 512, unlessDefault);
  visit.boolean("queryKeyNorm", &M::queryKeyNorm, unlessDefault);
  visit.boolean("queryKeyValueBias", &M::queryKeyValueBias, unlessDefault);
  visit.integer("slidingWindowTokens", &M::slidingWindowTokens, 1, kSize - 1, unlessDefault);
  visit.scaling("ropeScaling", &M::ropeScaling);
}

/// The same of the positions' scaling, whose kind says which fields it has.
template <typename Visitor>
void visitScaling(RopeScalingKind kind, Visitor&& visit) {
  using S = RopeScaling;
  using enum Presence;
  constexpr double most = 1e12;
  visit.number("factor", &S::factor, most, always);
  if (kind == RopeScalingKind::linear) return;
  visit.number("originalPositions", &S::originalPositions, most, always);
  if (kind == RopeScalingKind::llama3) {
    visit.number("lowFrequencyFactor", &S::lowFrequencyFactor, most, always);
    visit.number("highFrequencyFactor", &S::highFrequencyFactor, most, always);
    return;
  }
  visit.number("betaFast", &S::betaFast, most, unlessDefault);
  visit.number("betaSlow", &S::betaSlow, most, unlessDefault);
  visit.boolean("truncate", &S::truncate, unlessDefault);
  visit.number("attentionFactor", &S::attentionFactor, most, unlessDefault);
  visit.number("mscale", &S::mscale, most, unlessDefault);
  visit.number("mscaleAllDimensions", &S::mscaleAllDimensions, most, unlessDefault);
}

/// Without the first, none, which a document says by leaving the member out.
constexpr std::initializer_list<const char*> kScalingKinds = {"linear", "llama3", "yarn"};

template <typename Owner>
struct FieldReader {
  Reader& from;
  Owner& owner;

  bool skips(const char* name, Presence presence) const {
    return presence == Presence::unlessDefault && (!from.has(name) || from.isNull(name));
  }
  void integer(const char* name, std::int64_t Owner::*member, std::int64_t minimum, std::int64_t maximum,
               Presence presence) {
    if (!skips(name, presence)) owner.*member = from.integer(name, minimum, maximum);
  }
  void number(const char* name, double Owner::*member, double maximum, Presence presence) {
    if (!skips(name, presence)) owner.*member = from.number(name, 0, false, maximum);
  }
  void boolean(const char* name, bool Owner::*member, Presence presence) {
    if (!skips(name, presence)) owner.*member = from.boolean(name);
  }
  void scaling(const char* name, RopeScaling Owner::*member) {
    if (skips(name, Presence::unlessDefault)) return;
    Reader fields = from.object(name);
    RopeScaling& scaling = owner.*member;
    scaling.kind = static_cast<RopeScalingKind>(1 + fields.choice("kind", kScalingKinds));
    visitScaling(scaling.kind, FieldReader<RopeScaling>{fields, scaling});
    fields.finish();
  }
};

template <typename Owner>
struct FieldWriter {
  const Owner& owner;
  Json& to;
  Owner defaults{};

  template <typename Value>
  void write(const char* name, Value Owner::*member, Presence presence) {
    if (presence == Presence::always || owner.*member != defaults.*member) to[name] = owner.*member;
  }
  void integer(const char* name, std::int64_t Owner::*member, std::int64_t, std::int64_t, Presence presence) {
    write(name, member, presence);
  }
  void number(const char* name, double Owner::*member, double, Presence presence) {
    write(name, member, presence);
  }
  void boolean(const char* name, bool Owner::*member, Presence presence) { write(name, member, presence); }
  void scaling(const char* name, RopeScaling Owner::*member) {
    const RopeScaling& scaling = owner.*member;
    if (scaling.kind == RopeScalingKind::none) return;
    to[name]["kind"] = kScalingKinds.begin()[static_cast<int>(scaling.kind) - 1];
    visitScaling(scaling.kind, FieldWriter<RopeScaling>{scaling, to[name]});
  }
};

ModelConfig readModel(Reader r) {
  ModelConfig m;
  visitModel(FieldReader<ModelConfig>{r, m});
  r.finish();
  return m;
}

constexpr std::initializer_list<const char*> kForwardOverlaps = {"none", "block", "inter-layer",
                                                                 "intra-layer"};
constexpr std::initializer_list<const char*> kBackwardOverlaps = {"none", "block", "intra-layer"};
/// As libs/domain/src/precision.ts has them: each narrows what the one before it leaves wide.
constexpr std::initializer_list<const char*> kPrecisions = {"fp32", "bf16", "bf16-grad16"};
constexpr std::initializer_list<const char*> kGateUps = {"kept", "again", "host"};

/// Shows the visitor every field of a plan, in the order of documents: its name, its member, and its bounds or words.
template <typename Visitor>
void visitPlan(Visitor&& visit) {
  using P = PlanConfig;
  using enum Presence;
  constexpr std::int64_t factor = 1 << 20;  // the largest number of ranks along one dimension
  visit.integer("microBatchSize", &P::microBatchSize, 1, kSize - 1, always);
  visit.integer("microBatches", &P::microBatches, 1, kSize - 1, always);
  visit.boolean("recompute", &P::recompute);
  visit.integer("pipelineParallel", &P::pipelineParallel, 1, factor, always);
  visit.integer("dataParallel", &P::dataParallel, 1, factor, always);
  visit.integer("tensorParallel", &P::tensorParallel, 1, factor, always);
  visit.integer("sequenceParallel", &P::sequenceParallel, 1, factor, always);
  visit.integer("parameterSharding", &P::parameterSharding, 1, factor, always);
  visit.integer("gradientSharding", &P::gradientSharding, 1, factor, always);
  visit.integer("optimizerStateSharding", &P::optimizerStateSharding, 1, factor, always);
  visit.integer("contextParallel", &P::contextParallel, 1, factor, unlessDefault);
  visit.integer("pipelineChunks", &P::pipelineChunks, 1, 1024, unlessDefault);
  visit.integer("recomputeLayers", &P::recomputeLayers, 0, 10000, unlessDefault);
  visit.choice("gateUp", &P::gateUp, kGateUps);
  visit.choice("forwardOverlap", &P::forwardOverlap, kForwardOverlaps);
  visit.choice("backwardOverlap", &P::backwardOverlap, kBackwardOverlaps);
}

struct PlanReader {
  Reader& from;
  PlanConfig& plan;

  template <typename Integer>
  void integer(const char* name, Integer PlanConfig::*member, std::int64_t minimum, std::int64_t maximum,
               Presence presence) {
    if (presence == Presence::unlessDefault && !from.has(name)) return;
    plan.*member = static_cast<Integer>(from.integer(name, minimum, maximum));
  }
  void boolean(const char* name, bool PlanConfig::*member) { plan.*member = from.boolean(name); }
  template <typename Choice>
  void choice(const char* name, Choice PlanConfig::*member, std::initializer_list<const char*> words) {
    if (from.has(name)) plan.*member = static_cast<Choice>(from.choice(name, words));
  }
};

struct PlanWriter {
  const PlanConfig& plan;
  Json& to;
  PlanConfig defaults{};

  template <typename Integer>
  void integer(const char* name, Integer PlanConfig::*member, std::int64_t, std::int64_t, Presence presence) {
    if (presence == Presence::always || plan.*member != defaults.*member) to[name] = plan.*member;
  }
  void boolean(const char* name, bool PlanConfig::*member) { to[name] = plan.*member; }
  template <typename Choice>
  void choice(const char* name, Choice PlanConfig::*member, std::initializer_list<const char*> words) {
    if (plan.*member != defaults.*member) to[name] = words.begin()[static_cast<int>(plan.*member)];
  }
};

PlanConfig readPlan(Reader r) {
  PlanConfig plan;
  visitPlan(PlanReader{r, plan});
  r.finish();
  return plan;
}

TimelineConfig readTimeline(Reader r) {
  TimelineConfig t;
  t.path = r.text("path");
  t.firstStep = r.integer("firstStep", 1, 1000000000);
  t.steps = r.integer("steps", 1, 1000000000);
  if (r.has("capacityEvents")) t.capacityEvents = r.integer("capacityEvents", 1, 10000000);
  r.finish();
  return t;
}

WatchdogLimits readWatchdog(Reader r) {
  WatchdogLimits w;
  const auto seconds = [&](const char* name, double* value) {
    if (r.has(name)) *value = r.number(name, 0, false, 1e6);
  };
  // Each beat is a message to every rank: none would be left for the steps.
  if (r.has("beatSeconds")) {
    w.beatSeconds = r.number("beatSeconds", watchdog_defaults::leastBeatSeconds, true, 1e6);
  }
  seconds("silenceSeconds", &w.silenceSeconds);
  seconds("stallSeconds", &w.stallSeconds), seconds("stallFactor", &w.stallFactor);
  seconds("firstStepSeconds", &w.firstStepSeconds);
  r.finish();
  if (w.silenceSeconds < 3 * w.beatSeconds) {
    refuse(r.field("silenceSeconds"), Json(w.silenceSeconds).dump(), "is less than three beats",
           "give at least " + Json(3 * w.beatSeconds).dump() + ", or a shorter beatSeconds");
  }
  return w;
}

Groups readGroups(Reader& r, const char* name) {
  const Json& value = r.at(name);
  Groups groups;
  bool sound = value.is_array();
  for (std::size_t i = 0; sound && i < value.size(); ++i) {
    sound = value[i].is_array() && !value[i].empty();
    groups.emplace_back();
    for (std::size_t k = 0; sound && k < value[i].size(); ++k) {
      sound = value[i][k].is_number_integer() && value[i][k] >= 0 && value[i][k] < kSize;
      if (sound) groups.back().push_back(value[i][k].get<int>());
    }
  }
  if (!sound) {
    refuse(r.field(name), Reader::shorten(value), "is not a list of groups of ranks",
           "give the planner's mesh");
  }
  return groups;
}

MeshConfig readMesh(Reader r) {
  MeshConfig m;
  m.worldSize = static_cast<int>(r.integer("worldSize", 1, 1 << 20));
  m.sequenceParallel = readGroups(r, "sequenceParallel");
  m.dataParallel = readGroups(r, "dataParallel");
  m.tensorParallel = readGroups(r, "tensorParallel");
  m.pipelineParallel = readGroups(r, "pipelineParallel");
  m.parameterSharding = readGroups(r, "parameterSharding");
  m.optimizerStateSharding = readGroups(r, "optimizerStateSharding");
  m.gradientReplicas = readGroups(r, "gradientReplicas");
  r.finish();
  return m;
}

OptimizerConfig readOptimizer(Reader r) {
  OptimizerConfig o;
  o.peakLearningRate = r.number("peakLearningRate", 0, false, 10);
  o.minLearningRate = r.number("minLearningRate", 0, true, 10);
  o.warmupSteps = r.integer("warmupSteps", 0, 1000000000);
  o.decaySteps = r.integer("decaySteps", 1, 1000000000);
  o.weightDecay = r.number("weightDecay", 0, true, 10);
  o.beta1 = r.number("beta1", 0, true, 0.9999999);
  o.beta2 = r.number("beta2", 0, true, 0.9999999);
  o.epsilon = r.number("epsilon", 0, false, 1);
  o.clipGlobalNorm = r.number("clipGlobalNorm", 0, true, 1e6);
  if (r.has("schedule"))
    o.schedule =
        static_cast<LearningRateSchedule>(r.choice("schedule", {"cosine", "linear", "constant", "wsd"}));
  if (o.schedule == LearningRateSchedule::warmupStableDecay) {
    o.annealingSteps = r.integer("annealingSteps", 1, 1000000000);
    if (o.warmupSteps + o.annealingSteps > o.decaySteps)
      refuse(r.field("annealingSteps"), std::to_string(o.annealingSteps),
             "and warmupSteps are more than decaySteps",
             "give at most " + std::to_string(std::max<std::int64_t>(o.decaySteps - o.warmupSteps, 0)));
  }
  r.finish();
  if (o.minLearningRate > o.peakLearningRate) {
    refuse(r.field("minLearningRate"), Json(o.minLearningRate).dump(), "is above peakLearningRate",
           "give at most " + Json(o.peakLearningRate).dump());
  }
  return o;
}

/// Which file.
void readFile(Reader& r, std::string* path, DataConfig::Format* format) {
  using Format = DataConfig::Format;
  *path = r.text("path");
  if (!r.has("format")) return;
  constexpr Format kFormats[] = {Format::own, Format::megatron, Format::internevo};
  *format = kFormats[r.choice("format", {"own", "megatron", "internevo"})];
}

/// What ends a document.
void readEndOfDocument(Reader& r, std::int64_t vocabularySize, DataConfig* d) {
  if (r.has("endOfDocumentToken") && !r.isNull("endOfDocumentToken"))
    d->endOfDocumentToken = r.integer("endOfDocumentToken", 0, vocabularySize - 1);
}

DataConfig::Source readSource(Reader& r) {
  DataConfig::Source source;
  readFile(r, &source.path, &source.format);
  source.share = r.integer("share", 1, kMostShares);
  r.finish();
  return source;
}

DataConfig readData(Reader r, std::int64_t vocabularySize) {
  DataConfig d;
  if (r.has("sources")) {
    std::int64_t shares = 0;
    for (Reader& source : r.objects("sources")) {
      d.sources.push_back(readSource(source));
      shares += d.sources.back().share;
    }
    if (shares > kMostShares)
      refuse(r.field("sources"), std::to_string(shares),
             "have more shares than " + std::to_string(kMostShares), "divide them all by one number");
  } else {
    readFile(r, &d.path, &d.format);
  }
  readEndOfDocument(r, vocabularySize, &d);
  if (r.has("packing") && r.choice("packing", {"none", "documents"}) == 1)
    d.packing = DataConfig::Packing::documents;
  if (r.has("maxDocumentsPerSequence")) {
    d.maxDocumentsPerSequence = r.integer("maxDocumentsPerSequence", 1, kSize - 1);
  }
  r.finish();
  return d;
}

ValidationConfig readValidation(Reader r, const DataConfig& training, std::int64_t vocabularySize) {
  ValidationConfig v;
  Reader data = r.object("data");
  readFile(data, &v.data.path, &v.data.format);
  readEndOfDocument(data, vocabularySize, &v.data);
  data.finish();
  v.data.packing = training.packing;
  v.data.maxDocumentsPerSequence = training.maxDocumentsPerSequence;
  v.everySteps = r.integer("everySteps", 1, 1000000000);
  v.batches = r.integer("batches", 1, 1000000000);
  r.finish();
  return v;
}

DiskMargin readMargin(Reader r) {
  DiskMargin margin;
  margin.share = r.number("share", 0, true, 1);
  margin.bytes = r.integer("bytes", 0);
  r.finish();
  return margin;
}

CheckpointConfig readCheckpoint(Reader r) {
  CheckpointConfig c;
  c.directory = r.text("directory");
  c.everySteps = r.integer("everySteps", 1);
  c.keepLast = r.integer("keepLast", 1, 1000);
  c.resumeLatest = r.choice("resume", {"none", "latest"}) == 1;
  if (r.has("writing")) {
    c.writing =
        static_cast<CheckpointWriting>(r.choice("writing", {"automatic", "asynchronous", "synchronous"}));
  }
  if (r.has("onFailure")) c.stopOnFailure = r.choice("onFailure", {"continue", "stop"}) == 1;
  r.finish();
  return c;
}

}  // namespace

const char* Config::precisionName() const {
  return kPrecisions.begin()[(bf16() ? 1 : 0) + (gradientPrecision == DataType::bfloat16 ? 1 : 0)];
}

Config parseConfig(const std::string& text) {
  Json document;
  try {
    document = Json::parse(text);
  } catch (const Json::parse_error& error) {
    refuse("configuration", "", "is not JSON: " + std::string(error.what()), "correct the document");
  }
  Reader r(document, "");
  Config c;
  r.integer("protocol", protocol::version, protocol::version);
  c.model = readModel(r.object("model"));
  c.sequenceLengthTokens = r.integer("sequenceLengthTokens", 1, kSize - 1);
  const int precision = r.choice("precision", kPrecisions);
  if (precision > 0) c.precision = DataType::bfloat16;
  if (precision > 1) c.gradientPrecision = DataType::bfloat16;
  c.plan = readPlan(r.object("plan"));
  c.mesh = readMesh(r.object("mesh"));
  c.optimizer = readOptimizer(r.object("optimizer"));
  c.data = readData(r.object("data"), c.model.vocabularySize);
  c.seed = static_cast<std::uint64_t>(r.integer("seed", 0));
  c.steps = r.integer("steps", 1, 1000000000);
  if (r.has("validation") && !r.isNull("validation"))
    c.validation = readValidation(r.object("validation"), c.data, c.model.vocabularySize);
  if (!r.isNull("checkpoint")) c.checkpoint = readCheckpoint(r.object("checkpoint"));
  if (r.has("initialWeights") && !r.isNull("initialWeights")) {
    Reader weights = r.object("initialWeights");
    c.initialWeightsPath = weights.text("path");
    weights.finish();
  }
  if (!r.isNull("memoryLimitBytes")) c.memoryLimitBytes = r.integer("memoryLimitBytes", 1);
  if (r.has("device")) c.device = static_cast<DeviceKind>(r.choice("device", {"cpu", "cuda"}));
  c.threadsPerRank = static_cast<int>(r.integer("threadsPerRank", 1, 1024));
  c.deterministic = r.boolean("deterministic");
  if (!r.isNull("gradientDumpPath")) c.gradientDumpPath = r.text("gradientDumpPath");
  if (r.has("leaveFree")) c.leaveFree = readMargin(r.object("leaveFree"));
  if (r.has("timeline") && !r.isNull("timeline")) c.timeline = readTimeline(r.object("timeline"));
  if (r.has("watchdog")) {
    c.watchdog.reset();
    if (!r.isNull("watchdog")) c.watchdog = readWatchdog(r.object("watchdog"));
  }
  r.finish();
  return c;
}

Config loadConfig(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    refuse("--config", Json(path).dump(), "cannot be read", "give the path of a readable configuration");
  }
  return parseConfig(text.str());
}

PlanConfig parsePlan(const std::string& text) {
  const Json document = Json::parse(text, nullptr, false);
  return readPlan({document, "plan"});
}

std::string planJson(const PlanConfig& p) {
  Json plan;
  visitPlan(PlanWriter{p, plan});
  return plan.dump();
}

ModelConfig parseModel(const std::string& text) {
  const Json document = Json::parse(text, nullptr, false);
  return readModel({document, "model"});
}

std::string modelJson(const ModelConfig& m) {
  Json model;
  visitModel(FieldWriter<ModelConfig>{m, model});
  return model.dump();
}

}  // namespace internevo::trainer
