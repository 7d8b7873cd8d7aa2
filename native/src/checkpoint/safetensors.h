// Safetensors files: u64 length of the header, JSON header, data. Errors are Failure checkpointError and name the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/file.h"

namespace internevo::trainer {

enum class ElementType { float32, bfloat16, float16 };
std::int64_t bytesOf(ElementType type);
const char* nameOf(ElementType type);  ///< "F32", "BF16", "F16"

/// Float32 from elements of a type, one by one.
void convertToFloat(ElementType type, const void* source, float* target, std::int64_t elements);

struct SafetensorsTensor {
  std::string name;
  ElementType type = ElementType::float32;
  std::vector<std::int64_t> shape;
  std::int64_t offset =
      0;  ///< byte in the file; for a header that is to be written: set by layoutSafetensors

  std::int64_t elements() const;
  std::int64_t bytes() const { return elements() * bytesOf(type); }
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  ///< in the order of their data
  std::map<std::string, std::string> metadata;
};

/// Text of the header with its length, for tensors that lie one behind the other; sets their offsets.
std::string layoutSafetensors(SafetensorsHeader* header);

/// Reads and checks a header: types, and that the tensors fill the file without gap or overlap.
/// Tensors of other types are refused by name.
SafetensorsHeader readSafetensorsHeader(const FileReader& file);

struct SafetensorsEntry {
  std::string name;
  std::vector<std::int64_t> shape;
  const float* data = nullptr;
};

/// Writes float32 tensors and flushes, beside the margin. The partial file of a failure is left for the caller to remove.
FileSummary writeSafetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                             const std::map<std::string, std::string>& metadata,
                             const DiskMargin& margin = {});

}  // namespace internevo::trainer
