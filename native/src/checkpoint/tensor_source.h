// Logical tensors as they lie in files, whatever wrote them; reads any slice of them without holding more than it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/slices.h"

namespace internevo::trainer {

struct StoredPiece {
  int file = 0;  ///< index into TensorSource::paths
  Slice slice;
  std::int64_t offset = 0;  ///< byte of the slice's first element
  ElementType type = ElementType::float32;
};

struct StoredTensor {
  TensorShape shape;
  std::vector<StoredPiece> pieces;
};

struct TensorSource {
  std::vector<std::string> paths;
  std::map<std::string, StoredTensor> tensors;
};

/// What a checkpoint holds of every tensor. Errors: Failure checkpointError when it holds no `holds`.
TensorSource sourceOf(const Manifest& manifest, const std::string& directory, const std::string& holds);

/// Elements of a slice, as float32, to `target`.
struct SliceDemand {
  std::string tensor;
  Slice slice;
  float* target = nullptr;
};

/// Reads exactly the byte ranges of the demands (and gaps of at most 64 KiB between them), file by file, in order.
/// Memory: 4 MiB. Errors: Failure checkpointError naming the file, or the tensor that is missing or of another shape,
/// or that the files do not hold in full.
void readSlices(const TensorSource& source, const std::vector<SliceDemand>& demands);

}  // namespace internevo::trainer
