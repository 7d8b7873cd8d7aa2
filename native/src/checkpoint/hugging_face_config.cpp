// The config.json of Hugging Face folders, read and written.
#include <algorithm>
#include <array>

#include "checkpoint/hugging_face.h"
#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kOther = "give the folder of a LLaMA, Mistral, Qwen2, Qwen3 or InternLM2 model";

/// What the models of an architecture have, whatever their configuration says.
struct Architecture {
  const char* type;
  const char* className;
  bool queryKeyNorm = false, queryKeyValueBias = false;
  std::int64_t headSize =
      0;  ///< of a configuration that does not say it; 0: hidden_size / num_attention_heads
  bool kvHeadsMayLack = false;
  HuggingFaceLayout layout = HuggingFaceLayout::separate;
};

constexpr std::array<Architecture, 5> kArchitectures = {{
    {.type = "llama", .className = "LlamaForCausalLM", .kvHeadsMayLack = true},
    {.type = "mistral", .className = "MistralForCausalLM"},
    {.type = "qwen2", .className = "Qwen2ForCausalLM", .queryKeyValueBias = true},
    {.type = "qwen3", .className = "Qwen3ForCausalLM", .queryKeyNorm = true, .headSize = 128},
    {.type = "internlm2",
     .className = "InternLM2ForCausalLM",
     .kvHeadsMayLack = true,
     .layout = HuggingFaceLayout::fused},
}};

/// A folder's configuration, member by member.
class Configuration {
 public:
  explicit Configuration(const std::string& path) : path_(path), json_(readObject(path)) {}

  const std::string& path() const { return path_; }
  bool lacks(const char* member) const { return !json_.contains(member); }
  bool has(const char* member) const { return json_.contains(member) && !json_[member].is_null(); }
  Json at(const char* member, Json otherwise = nullptr) const {
    return has(member) ? json_[member] : std::move(otherwise);
  }
  [[noreturn]] void refuse(const char* member, const std::string& what, const std::string& remedy) const {
    refuseMember(path_, member, what, remedy);
  }
  std::int64_t size(const char* member, std::int64_t otherwise = 0) const {
    if (!has(member)) {
      if (otherwise > 0) return otherwise;
      refuse(member, "is missing", kOther);
    }
    const Json& value = json_[member];
    if (!value.is_number_integer() || value < 1 || value > (std::int64_t{1} << 31))
      refuse(member, value.dump() + " is no size", kOther);
    return value.get<std::int64_t>();
  }
  double positive(const char* member, double otherwise) const {
    const Json value = at(member, otherwise);
    if (!value.is_number() || value <= 0)
      refuse(member, value.dump() + " is no number above 0", "give a number");
    return value.get<double>();
  }
  bool flag(const char* member) const {
    const Json value = at(member, false);
    if (!value.is_boolean()) refuse(member, value.dump() + " is no boolean", "give true or false");
    return value.get<bool>();
  }
  /// A member that must have this value when it is there.
  void require(const char* member, const Json& value) const {
    if (!has(member) || json_[member] == value) return;
    refuse(member, json_[member].dump() + " is not supported; it must be " + value.dump(),
           "give a model without it");
  }
  /// Newer folders keep the positions' base and scaling in rope_parameters; rope_scaling is the older name.
  Json rope() const {
    const Json newer = at("rope_parameters"), older = at("rope_scaling");
    return newer.is_object() ? newer : older.is_object() ? older : Json::object();
  }

 private:
  std::string path_;
  Json json_;
};

const Architecture& architectureOf(const Configuration& config) {
  const Json type = config.at("model_type");
  const auto found = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                  [&](const Architecture& each) { return type == each.type; });
  if (found == kArchitectures.end()) config.refuse("model_type", type.dump() + " is not supported", kOther);
  return *found;
}

// ---- positions -----------------------------------------------------------------------------------------------------

struct ScalingKind {
  const char* name;
  RopeScalingKind kind;
};
constexpr std::array<ScalingKind, 3> kScalingKinds = {{{"linear", RopeScalingKind::linear},
                                                       {"llama3", RopeScalingKind::llama3},
                                                       {"yarn", RopeScalingKind::yarn}}};

/// Names there and here. A member that is zero here and not always there is left out.
struct ScalingField {
  const char* name;
  double RopeScaling::*member;
  RopeScalingKind kind;  ///< that has it; none: all
};
constexpr std::array<ScalingField, 8> kScalingFields = {{
    {"factor", &RopeScaling::factor, RopeScalingKind::none},
    {"low_freq_factor", &RopeScaling::lowFrequencyFactor, RopeScalingKind::llama3},
    {"high_freq_factor", &RopeScaling::highFrequencyFactor, RopeScalingKind::llama3},
    {"beta_fast", &RopeScaling::betaFast, RopeScalingKind::yarn},
    {"beta_slow", &RopeScaling::betaSlow, RopeScalingKind::yarn},
    {"attention_factor", &RopeScaling::attentionFactor, RopeScalingKind::yarn},
    {"mscale", &RopeScaling::mscale, RopeScalingKind::yarn},
    {"mscale_all_dim", &RopeScaling::mscaleAllDimensions, RopeScalingKind::yarn},
}};
constexpr const char* kOriginalPositions = "original_max_position_embeddings";

bool hasField(const ScalingField& field, RopeScalingKind kind) {
  return field.kind == RopeScalingKind::none || field.kind == kind;
}

RopeScaling scalingOf(const Configuration& config) {
  const Json rope = config.rope();
  const Json type = rope.contains("rope_type") ? rope["rope_type"] : rope.value("type", Json("default"));
  RopeScaling scaling;
  if (type == "default") return scaling;
  const auto found = std::find_if(kScalingKinds.begin(), kScalingKinds.end(),
                                  [&](const ScalingKind& each) { return type == each.name; });
  if (found == kScalingKinds.end()) {
    config.refuse("rope_scaling", type.dump() + " is not supported; linear, llama3 and yarn are",
                  "give a model whose positions are scaled in one of these ways");
  }
  scaling.kind = found->kind;
  const auto number = [&](const char* name, double* value) {
    if (!rope.contains(name) || rope[name].is_null()) return;
    if (!rope[name].is_number())
      config.refuse("rope_scaling", std::string(name) + " " + rope[name].dump() + " is no number",
                    "give a number");
    *value = rope[name].get<double>();
  };
  for (const ScalingField& field : kScalingFields) {
    if (hasField(field, scaling.kind)) number(field.name, &(scaling.*field.member));
  }
  if (scaling.kind == RopeScalingKind::linear) return scaling;
  scaling.originalPositions = config.positive("max_position_embeddings", 2048);
  number(kOriginalPositions, &scaling.originalPositions);
  if (scaling.kind == RopeScalingKind::yarn) scaling.truncate = rope.value("truncate", true);
  return scaling;
}

Json scalingJson(const RopeScaling& scaling) {
  if (scaling.kind == RopeScalingKind::none) return nullptr;
  Json rope = Json::object();
  for (const ScalingKind& each : kScalingKinds) {
    if (each.kind == scaling.kind) rope["rope_type"] = each.name;
  }
  for (const ScalingField& field : kScalingFields) {
    if (hasField(field, scaling.kind) && scaling.*field.member != 0) rope[field.name] = scaling.*field.member;
  }
  if (scaling.kind == RopeScalingKind::linear) return rope;
  rope[kOriginalPositions] = static_cast<std::int64_t>(scaling.originalPositions);
  if (scaling.kind == RopeScalingKind::yarn && !scaling.truncate) rope["truncate"] = false;
  return rope;
}

double thetaOf(const Configuration& config) {
  const Json rope = config.rope();
  if (!rope.contains("rope_theta")) return config.positive("rope_theta", 10000);
  const Json& theta = rope["rope_theta"];
  if (!theta.is_number() || theta <= 0)
    config.refuse("rope_theta", theta.dump() + " is no number above 0", "give a number");
  return theta.get<double>();
}

// ---- windows -------------------------------------------------------------------------------------------------------

/// Keys that a query sees at most in every layer; 0: all. Models of which some layers alone have a window are refused.
std::int64_t windowOf(const Configuration& config, const Architecture& architecture, std::int64_t layers) {
  const std::string type = architecture.type;
  if (type == "mistral") {
    if (config.lacks("sliding_window")) return 4096;  // what its models have that do not say it; null is none
    return config.has("sliding_window") ? config.size("sliding_window") : 0;
  }
  if (type != "qwen2" && type != "qwen3") return 0;
  if (!config.flag("use_sliding_window")) return 0;
  // A list of kinds counts; the number of layers only makes one where there is none.
  if (const Json kinds = config.at("layer_types"); kinds.is_array() && !kinds.empty()) {
    const bool alike =
        std::all_of(kinds.begin(), kinds.end(), [&](const Json& each) { return each == kinds[0]; });
    if (!alike)
      config.refuse("layer_types", "are of several kinds: some layers have a window and others none",
                    "give a model whose layers are all of one kind");
    return kinds[0] == "sliding_attention" ? config.size("sliding_window", 4096) : 0;
  }
  const Json whole = config.at("max_window_layers", 28);
  if (!whole.is_number_integer() || whole >= layers) return 0;
  if (whole != 0) {
    config.refuse("max_window_layers",
                  whole.dump() + " leaves some layers without a window and others with one",
                  "set use_sliding_window to false, or max_window_layers to 0 for a window in every layer");
  }
  return config.size("sliding_window", 4096);
}

void checkShape(const Configuration& config, const ModelConfig& m) {
  const bool divides = m.givenHeadSize > 0 || m.hiddenSize % m.heads == 0;
  if (!divides || m.heads % m.kvHeads != 0) {
    config.refuse("num_attention_heads",
                  std::to_string(m.heads) + " does not fit hidden_size and num_key_value_heads",
                  "give heads that both fit");
  }
}

const Architecture& architectureFor(const ModelConfig& m) {
  for (const Architecture& each : kArchitectures) {
    const bool windows = each.type != std::string("llama");
    if (each.layout != HuggingFaceLayout::separate || each.queryKeyNorm != m.queryKeyNorm ||
        each.queryKeyValueBias != m.queryKeyValueBias || windows < (m.slidingWindowTokens > 0))
      continue;
    return each;
  }
  throw Failure(
      Problem{StatusCode::checkpointError,
              "no Hugging Face architecture has both norms of heads and biases of their projections",
              "model.queryKeyValueBias", "true", "export a model that has one of the two"});
}

}  // namespace

[[noreturn]] void refuseMember(const std::string& path, const std::string& member, const std::string& what,
                               const std::string& remedy) {
  throw Failure(Problem{StatusCode::checkpointError, path + ": " + member + " " + what, member, "", remedy});
}

nlohmann::json readObject(const std::string& path) {
  nlohmann::json document = nlohmann::json::parse(readTextFile(path), nullptr, false);
  if (!document.is_object()) refuseFile(path, "is not a JSON object");
  return document;
}

HuggingFaceFolder huggingFaceFolder(const std::string& folder) {
  const Configuration config(folder + "/" + kHuggingFaceConfig);
  const Architecture& architecture = architectureOf(config);
  config.require("hidden_act", "silu");
  config.require("attention_bias", false);
  config.require("mlp_bias", false);
  // A configuration that does not say it has biases.
  if (architecture.layout == HuggingFaceLayout::fused && config.at("bias", true) != false)
    config.refuse("bias", config.at("bias", true).dump() + " is not supported; it must be false",
                  "give a model without biases, whose configuration says so");
  ModelConfig m;
  m.hiddenSize = config.size("hidden_size");
  m.layers = config.size("num_hidden_layers");
  m.heads = config.size("num_attention_heads");
  m.kvHeads = config.size("num_key_value_heads", architecture.kvHeadsMayLack ? m.heads : 0);
  m.ffnHiddenSize = config.size("intermediate_size");
  m.vocabularySize = config.size("vocab_size");
  m.tiedEmbeddings = config.flag("tie_word_embeddings");
  m.queryKeyNorm = architecture.queryKeyNorm, m.queryKeyValueBias = architecture.queryKeyValueBias;
  m.ropeTheta = thetaOf(config), m.ropeScaling = scalingOf(config);
  m.normEpsilon = config.positive("rms_norm_eps", 1e-6);
  m.slidingWindowTokens = windowOf(config, architecture, m.layers);
  const Json deviation = config.at("initializer_range", 0.02);
  if (deviation.is_number() && deviation > 0) m.initStandardDeviation = deviation.get<double>();
  m.givenHeadSize = config.has("head_dim") ? config.size("head_dim") : architecture.headSize;
  if (m.givenHeadSize * m.heads == m.hiddenSize) m.givenHeadSize = 0;
  checkShape(config, m);
  return {m, architecture.layout};
}

std::string huggingFaceConfig(const ModelConfig& m, const ExportSettings& settings) {
  const Architecture& architecture = architectureFor(m);
  Json config{{"architectures", {architecture.className}},
              {"model_type", architecture.type},
              {"hidden_size", m.hiddenSize},
              {"num_hidden_layers", m.layers},
              {"num_attention_heads", m.heads},
              {"num_key_value_heads", m.kvHeads},
              {"head_dim", m.headSize()},
              {"intermediate_size", m.ffnHiddenSize},
              {"vocab_size", m.vocabularySize},
              {"tie_word_embeddings", m.tiedEmbeddings},
              {"rope_theta", m.ropeTheta},
              {"rope_scaling", scalingJson(m.ropeScaling)},
              {"rms_norm_eps", m.normEpsilon},
              {"initializer_range", m.initStandardDeviation},
              {"max_position_embeddings", settings.maximumPositions},
              {"hidden_act", "silu"},
              {"attention_bias", false},
              {"attention_dropout", 0.0},
              {"mlp_bias", false},
              {"bos_token_id", nullptr},
              {"eos_token_id", nullptr},
              {"use_cache", true},
              {"torch_dtype", settings.type == ElementType::float32 ? "float32" : "bfloat16"}};
  if (architecture.type != std::string("llama")) {
    const bool window = m.slidingWindowTokens > 0;
    config.erase("mlp_bias"), config.erase("attention_bias");
    config["sliding_window"] = window ? Json(m.slidingWindowTokens) : Json();
    if (architecture.type != std::string("mistral")) {
      config["use_sliding_window"] = window, config["max_window_layers"] = window ? 0 : m.layers;
    }
  }
  return config.dump(2) + "\n";
}

}  // namespace internevo::trainer
