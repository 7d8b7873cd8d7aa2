#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "internevo/tensor.h"

namespace internevo::trainer {

namespace {

// Not ordered_json, which looks through all members for each one that it adds or finds.
using Json = nlohmann::json;

/// As the reference implementation bounds it.
constexpr std::int64_t kLargestHeader = 100'000'000;

float floatFromFloat16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const float sign = (bits & 0x8000u) != 0 ? -1.f : 1.f;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                               : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25));
}

SafetensorsTensor tensorOf(const std::string& name, const Json& entry, const FileReader& file,
                           std::int64_t dataStart) {
  const auto damaged = [&] {
    refuseFile(file.path(), "is damaged: its header does not describe " + name + " soundly");
  };
  SafetensorsTensor tensor;
  tensor.name = name;
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2) {
    damaged();
  }
  const std::string type = entry["dtype"];
  bool known = false;
  for (const ElementType each : {ElementType::float32, ElementType::bfloat16, ElementType::float16}) {
    if (type == nameOf(each)) tensor.type = each, known = true;
  }
  if (!known) {
    refuseFile(file.path(), "holds " + name + " as " + type + ", which is not read",
               "give tensors of F32, BF16 or F16");
  }
  std::int64_t elements = 1;
  for (const Json& size : entry["shape"]) {
    if (!size.is_number_unsigned() || size > file.bytes()) damaged();
    tensor.shape.push_back(size.get<std::int64_t>());
    if (tensor.shape.back() != 0 && elements > file.bytes() / tensor.shape.back()) damaged();
    elements *= tensor.shape.back();
  }
  const Json& offsets = entry["data_offsets"];
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned() || offsets[1] > file.bytes() ||
      offsets[0] > offsets[1]) {
    damaged();
  }
  tensor.offset = dataStart + offsets[0].get<std::int64_t>();
  if (offsets[1].get<std::int64_t>() - offsets[0].get<std::int64_t>() != tensor.bytes()) damaged();
  return tensor;
}

}  // namespace

std::int64_t bytesOf(ElementType type) { return type == ElementType::float32 ? 4 : 2; }

const char* nameOf(ElementType type) {
  switch (type) {
    case ElementType::float32: return "F32";
    case ElementType::bfloat16: return "BF16";
    case ElementType::float16: return "F16";
  }
  return "";
}

void convertToFloat(ElementType type, const void* source, float* target, std::int64_t elements) {
  if (type == ElementType::float32) {
    std::memcpy(target, source, static_cast<std::size_t>(elements) * sizeof(float));
    return;
  }
  const auto* const bits = static_cast<const std::uint16_t*>(source);
  for (std::int64_t i = 0; i < elements; ++i) {
    target[i] = type == ElementType::bfloat16 ? floatFromBfloat16(bits[i]) : floatFromFloat16(bits[i]);
  }
}

std::int64_t SafetensorsTensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string layoutSafetensors(SafetensorsHeader* header) {
  std::string text = "{";
  const auto add = [&](const std::string& name, const nlohmann::ordered_json& value) {
    if (text.size() > 1) text += ',';
    text += Json(name).dump() + ":" + value.dump();
  };
  if (!header->metadata.empty()) add("__metadata__", header->metadata);
  std::int64_t at = 0;
  for (const SafetensorsTensor& tensor : header->tensors) {
    add(tensor.name, {{"dtype", nameOf(tensor.type)},
                      {"shape", tensor.shape},
                      {"data_offsets", {at, at + tensor.bytes()}}});
    at += tensor.bytes();
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  text.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
  at = static_cast<std::int64_t>(text.size());
  for (SafetensorsTensor& tensor : header->tensors) tensor.offset = at, at += tensor.bytes();
  return text;
}

SafetensorsHeader readSafetensorsHeader(const FileReader& file) {
  std::uint64_t length = 0;
  file.read(0, &length, sizeof length);
  if (length > static_cast<std::uint64_t>(kLargestHeader) ||
      static_cast<std::int64_t>(length) > file.bytes() - 8) {
    refuseFile(file.path(), "is damaged: its header cannot have " + std::to_string(length) + " bytes");
  }
  std::string text(length, ' ');
  file.read(8, text.data(), static_cast<std::int64_t>(length));
  const Json document = Json::parse(text, nullptr, false);
  if (!document.is_object()) refuseFile(file.path(), "is damaged: its header is not JSON");
  SafetensorsHeader header;
  const auto dataStart = 8 + static_cast<std::int64_t>(length);
  for (const auto& [name, entry] : document.items()) {
    if (name != "__metadata__") {
      header.tensors.push_back(tensorOf(name, entry, file, dataStart));
      continue;
    }
    for (const auto& [key, value] : entry.items()) {
      if (value.is_string()) header.metadata[key] = value.get<std::string>();
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const auto& a, const auto& b) { return a.offset < b.offset; });
  std::int64_t at = dataStart;
  for (const SafetensorsTensor& tensor : header.tensors) {
    if (tensor.offset != at)
      refuseFile(file.path(), "is damaged: " + tensor.name + " does not begin where the one before ends");
    at += tensor.bytes();
  }
  if (at != file.bytes()) {
    refuseFile(file.path(), "is truncated or damaged: its tensors end at byte " + std::to_string(at) +
                                ", it has " + std::to_string(file.bytes()));
  }
  return header;
}

FileSummary writeSafetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                             const std::map<std::string, std::string>& metadata, const DiskMargin& margin) {
  SafetensorsHeader header;
  header.metadata = metadata;
  std::int64_t bytes = 0;
  for (const SafetensorsEntry& entry : entries) {
    header.tensors.push_back({entry.name, ElementType::float32, entry.shape, 0});
    bytes += header.tensors.back().bytes();
  }
  const std::string text = layoutSafetensors(&header);
  FileWriter file(path, static_cast<std::int64_t>(text.size()) + bytes, margin);
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  for (std::size_t i = 0; i < entries.size(); ++i) file.write(entries[i].data, header.tensors[i].bytes());
  return file.finish();
}

}  // namespace internevo::trainer
