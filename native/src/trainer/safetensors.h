// Safetensors files of float32 tensors: u64 length of the header, JSON header, data. The whole file has an XXH3 sum.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace internevo::trainer {

struct SafetensorsEntry {
  std::string name;
  std::vector<std::int64_t> shape;
  const float* data = nullptr;
};

struct FileSummary {
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;  ///< XXH3, 64 bits
};

/// Writes and fsyncs. Errors: Failure checkpointError naming the file and the cause (e.g. no space); the partial file is
/// left for the caller to remove with its directory.
FileSummary writeSafetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                             const std::map<std::string, std::string>& metadata);

struct SafetensorsTarget {
  std::string name;
  std::int64_t elements = 0;
  float* data = nullptr;
};

/// Reads a file that must hold exactly these tensors, in this order, and have this size and checksum.
/// Errors: Failure checkpointError naming the file and what is wrong. Targets may then hold anything.
void readSafetensors(const std::string& path, const FileSummary& expected,
                     const std::vector<SafetensorsTarget>& targets);

/// Writes text and fsyncs; reads a whole file; fsyncs a directory. Errors: Failure checkpointError naming the path.
void writeTextFile(const std::string& path, const std::string& text);
std::string readTextFile(const std::string& path);
void syncDirectory(const std::string& path);

std::uint64_t checksumOf(const std::string& text);

}  // namespace internevo::trainer
