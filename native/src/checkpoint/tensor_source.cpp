#include "checkpoint/tensor_source.h"

#include <algorithm>

#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

constexpr std::int64_t kSpanBytes = std::int64_t{4} << 20;  // of one read
constexpr std::int64_t kGapBytes = std::int64_t{64} << 10;  // read over rather than jumped over

/// A run of a demand in its file.
struct FileRun {
  std::int64_t offset;  ///< byte in the file
  std::int64_t elements;
  float* target;
  ElementType type;
  std::int64_t end() const { return offset + elements * bytesOf(type); }
};

using RunsByFile = std::vector<std::vector<FileRun>>;

void addRuns(const TensorSource& source, const SliceDemand& demand, RunsByFile* runs) {
  const auto found = source.tensors.find(demand.tensor);
  if (found == source.tensors.end()) {
    throw Failure(StatusCode::checkpointError, demand.tensor + " is in none of the files");
  }
  std::int64_t got = 0;
  for (const StoredPiece& piece : found->second.pieces) {
    if (lastRow(piece.slice) < firstRow(demand.slice) || lastRow(demand.slice) < firstRow(piece.slice))
      continue;
    for (const Run& run : sharedRuns(piece.slice, demand.slice)) {
      (*runs)[static_cast<std::size_t>(piece.file)].push_back(
          {piece.offset + run.source * bytesOf(piece.type), run.elements, demand.target + run.target,
           piece.type});
      got += run.elements;
    }
  }
  if (got != demand.slice.elements()) {
    throw Failure(StatusCode::checkpointError,
                  "the files do not hold " + nameOf(demand.slice) + " of " + demand.tensor + " exactly once");
  }
}

/// Cuts runs so that each fits into one span.
std::vector<FileRun> cut(const std::vector<FileRun>& runs) {
  std::vector<FileRun> pieces;
  for (FileRun run : runs) {
    const std::int64_t width = bytesOf(run.type), most = kSpanBytes / width;
    for (; run.elements > most; run.offset += most * width, run.target += most, run.elements -= most) {
      pieces.push_back({run.offset, most, run.target, run.type});
    }
    pieces.push_back(run);
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const FileRun& a, const FileRun& b) { return a.offset < b.offset; });
  return pieces;
}

void readRuns(const FileReader& file, const std::vector<FileRun>& runs, std::vector<char>* buffer) {
  for (std::size_t first = 0; first < runs.size();) {
    const std::int64_t begin = runs[first].offset;
    std::int64_t end = runs[first].end();
    std::size_t last = first + 1;
    while (last < runs.size() && runs[last].offset - end <= kGapBytes &&
           runs[last].end() - begin <= kSpanBytes) {
      end = std::max(end, runs[last++].end());
    }
    file.read(begin, buffer->data(), end - begin);
    for (; first < last; ++first) {
      const FileRun& run = runs[first];
      convertToFloat(run.type, buffer->data() + (run.offset - begin), run.target, run.elements);
    }
  }
}

}  // namespace

TensorSource sourceOf(const Manifest& m, const std::string& directory, const std::string& holds) {
  const auto at = std::find(m.holds.begin(), m.holds.end(), holds);
  if (at == m.holds.end()) {
    refuseFile(directory, "holds no " + holds,
               "give a checkpoint that a run saved, or use it as initialWeights");
  }
  const auto index = static_cast<std::size_t>(at - m.holds.begin());
  TensorSource source;
  for (const auto& [name, shape] : m.tensors) source.tensors[name].shape = shape;
  for (const SavedFile& file : m.files) {
    source.paths.push_back(directory + "/" + file.name);
    for (const SavedPiece& piece : file.pieces) {
      source.tensors[piece.tensor].pieces.push_back({static_cast<int>(source.paths.size() - 1), piece.slice,
                                                     piece.offsets[index], ElementType::float32});
    }
  }
  return source;
}

void readSlices(const TensorSource& source, const std::vector<SliceDemand>& demands) {
  RunsByFile runs(source.paths.size());
  for (const SliceDemand& demand : demands) addRuns(source, demand, &runs);
  std::vector<char> buffer(static_cast<std::size_t>(kSpanBytes));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].empty()) readRuns(FileReader(source.paths[i]), cut(runs[i]), &buffer);
  }
}

}  // namespace internevo::trainer
