// A LLaMA model read from a Hugging Face folder and evaluated as its published architecture says: whole matrices of
// float64, rotate_half over doubled angles, repeated key and value heads, a mask. Shares nothing with the product.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace internevo::trainer::testing {

using Matrix = std::vector<std::vector<double>>;

class HuggingFaceModel {
 public:
  explicit HuggingFaceModel(const std::string& folder) {
    config_ = nlohmann::json::parse(textOf(folder + "/config.json"));
    const std::string bytes = textOf(folder + "/model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, length));
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      const std::size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
      std::vector<float> values((end - begin) / 4);
      std::memcpy(values.data(), bytes.data() + 8 + length + begin, end - begin);
      const std::size_t columns = entry["shape"].back(), rows = values.size() / columns;
      for (std::size_t r = 0; r < rows; ++r) {
        tensors_[name].emplace_back(values.begin() + static_cast<std::ptrdiff_t>(r * columns),
                                    values.begin() + static_cast<std::ptrdiff_t>((r + 1) * columns));
      }
    }
  }

  /// Logits [tokens, vocabulary].
  Matrix logits(const std::vector<int>& tokens) const {
    Matrix x;
    for (const int token : tokens)
      x.push_back(at("model.embed_tokens.weight")[static_cast<std::size_t>(token)]);
    for (int layer = 0; layer < config_["num_hidden_layers"]; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      x = sum(x, attention(prefix + "self_attn.", normed(x, prefix + "input_layernorm.weight")));
      const Matrix h = normed(x, prefix + "post_attention_layernorm.weight");
      Matrix gate = linear(h, prefix + "mlp.gate_proj.weight");
      const Matrix up = linear(h, prefix + "mlp.up_proj.weight");
      for (std::size_t t = 0; t < gate.size(); ++t) {
        for (std::size_t i = 0; i < gate[t].size(); ++i) gate[t][i] *= up[t][i] / (1 + std::exp(-gate[t][i]));
      }
      x = sum(x, linear(gate, prefix + "mlp.down_proj.weight"));
    }
    return linear(normed(x, "model.norm.weight"),
                  config_["tie_word_embeddings"] ? "model.embed_tokens.weight" : "lm_head.weight");
  }

  /// Mean cross-entropy of the targets.
  double loss(const std::vector<int>& tokens, const std::vector<int>& targets) const {
    const Matrix scores = logits(tokens);
    double total = 0;
    for (std::size_t t = 0; t < scores.size(); ++t) {
      double partition = 0;
      for (const double score : scores[t]) partition += std::exp(score);
      total += std::log(partition) - scores[t][static_cast<std::size_t>(targets[t])];
    }
    return total / static_cast<double>(scores.size());
  }

 private:
  static std::string textOf(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  const Matrix& at(const std::string& name) const { return tensors_.at(name); }
  Matrix linear(const Matrix& x, const std::string& name) const {
    const Matrix& w = at(name);
    Matrix y(x.size(), std::vector<double>(w.size(), 0));
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t o = 0; o < w.size(); ++o) {
        for (std::size_t i = 0; i < x[t].size(); ++i) y[t][o] += x[t][i] * w[o][i];
      }
    }
    return y;
  }
  static Matrix sum(Matrix a, const Matrix& b) {
    for (std::size_t t = 0; t < a.size(); ++t) {
      for (std::size_t i = 0; i < a[t].size(); ++i) a[t][i] += b[t][i];
    }
    return a;
  }
  Matrix normed(Matrix x, const std::string& name) const {
    for (auto& row : x) {
      double squares = 0;
      for (const double value : row) squares += value * value;
      const double scale =
          1 / std::sqrt(squares / static_cast<double>(row.size()) + config_["rms_norm_eps"].get<double>());
      for (std::size_t i = 0; i < row.size(); ++i) row[i] *= scale * at(name)[0][i];
    }
    return x;
  }
  /// x·cos + rotate_half(x)·sin with the angles [f, f] over the head.
  void rotate(std::vector<double>* row, std::size_t position, std::size_t heads, std::size_t d) const {
    const std::vector<double> x = *row;
    for (std::size_t head = 0; head < heads; ++head) {
      for (std::size_t i = 0; i < d; ++i) {
        const double frequency =
            1 / std::pow(config_["rope_theta"].get<double>(),
                         static_cast<double>(2 * (i % (d / 2))) / static_cast<double>(d));
        const double angle = static_cast<double>(position) * frequency;
        const double half = i < d / 2 ? -x[head * d + i + d / 2] : x[head * d + i - d / 2];
        (*row)[head * d + i] = x[head * d + i] * std::cos(angle) + half * std::sin(angle);
      }
    }
  }
  Matrix attention(const std::string& prefix, const Matrix& x) const {
    const std::size_t heads = config_["num_attention_heads"], kv = config_["num_key_value_heads"],
                      length = x.size();
    Matrix q = linear(x, prefix + "q_proj.weight"), k = linear(x, prefix + "k_proj.weight");
    const Matrix v = linear(x, prefix + "v_proj.weight");
    const std::size_t d = q[0].size() / heads;
    for (std::size_t t = 0; t < length; ++t) rotate(&q[t], t, heads, d), rotate(&k[t], t, kv, d);
    Matrix out(length, std::vector<double>(heads * d, 0));
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t shared = head / (heads / kv);
      for (std::size_t t = 0; t < length; ++t) {
        std::vector<double> weights(length, 0);
        double total = 0;
        for (std::size_t u = 0; u < length; ++u) {
          double score = u <= t ? 0 : -INFINITY;
          for (std::size_t i = 0; i < d; ++i)
            score += q[t][head * d + i] * k[u][shared * d + i] / std::sqrt(static_cast<double>(d));
          total += weights[u] = std::exp(score);
        }
        for (std::size_t u = 0; u < length; ++u) {
          for (std::size_t i = 0; i < d; ++i)
            out[t][head * d + i] += weights[u] / total * v[u][shared * d + i];
        }
      }
    }
    return linear(out, prefix + "o_proj.weight");
  }

  nlohmann::json config_;
  std::map<std::string, Matrix> tensors_;
};

/// Writes a folder of random float32 weights; shapes by name.
inline void writeRandomFolder(const std::string& folder, const nlohmann::json& config, unsigned seed) {
  const std::int64_t h = config["hidden_size"], f = config["intermediate_size"], v = config["vocab_size"];
  const std::int64_t w = h / config["num_attention_heads"].get<std::int64_t>() *
                         config["num_key_value_heads"].get<std::int64_t>();
  std::map<std::string, std::vector<std::int64_t>> shapes = {{"model.embed_tokens.weight", {v, h}},
                                                             {"model.norm.weight", {h}}};
  if (!config["tie_word_embeddings"].get<bool>()) shapes["lm_head.weight"] = {v, h};
  for (int layer = 0; layer < config["num_hidden_layers"]; ++layer) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    shapes[p + "input_layernorm.weight"] = shapes[p + "post_attention_layernorm.weight"] = {h};
    shapes[p + "self_attn.q_proj.weight"] = shapes[p + "self_attn.o_proj.weight"] = {h, h};
    shapes[p + "self_attn.k_proj.weight"] = shapes[p + "self_attn.v_proj.weight"] = {w, h};
    shapes[p + "mlp.gate_proj.weight"] = shapes[p + "mlp.up_proj.weight"] = {f, h};
    shapes[p + "mlp.down_proj.weight"] = {h, f};
  }
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.2f);
  nlohmann::json header;
  std::string data;
  for (const auto& [name, shape] : shapes) {
    const std::size_t begin = data.size();
    const std::int64_t elements = shape.size() == 1 ? shape[0] : shape[0] * shape[1];
    for (std::int64_t i = 0; i < elements; ++i) {
      const float value = (shape.size() == 1 ? 1.f : 0.f) + normal(random);
      data.append(reinterpret_cast<const char*>(&value), 4);
    }
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream(folder + "/config.json") << config;
  std::ofstream(folder + "/model.safetensors", std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), 8) << text << data;
}

}  // namespace internevo::trainer::testing
