// What a run is trained on: one file, or a mixture of several by share. It says which sequence of which file every place
// of the run holds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/failure.h"
#include "trainer/token_file.h"

namespace internevo::trainer {

/// Which source each draw of a mixture takes its sequence from. The pattern of `cycle()` draws repeats. After every draw
/// each source has had its share of the draws: with two sources give or take less than one sequence, with more less than
/// two.
class MixturePattern {
 public:
  /// `shares`: sequences of a cycle that each source gives, each at least 1.
  explicit MixturePattern(const std::vector<std::int64_t>& shares);

  struct Draw {
    std::int64_t source;
    std::int64_t index;  ///< how many sequences the source gave before
  };
  /// `draw` counts from 0.
  Draw at(std::int64_t draw) const;
  std::int64_t cycle() const { return static_cast<std::int64_t>(pattern_.size()); }

 private:
  std::vector<std::int64_t> shares_;
  std::vector<Draw> pattern_;
};

/// Calls what reads a source of a mixture: its errors then name the source's field, data.sources.N.path. Without a source
/// they stay as they are. Errors: Failure of the call.
template <typename Read>
void readingSource(std::optional<std::int64_t> source, const Read& read) {
  try {
    read();
  } catch (const Failure& failure) {
    Problem problem = failure.problem();
    if (source && problem.field == "data.path")
      problem.field = "data.sources." + std::to_string(*source) + ".path";
    throw Failure(std::move(problem));
  }
}

class TrainingData {
 public:
  /// Errors: those of TokenFile::open; of a mixture's sources they name the field data.sources.N.path.
  void open(const DataConfig& config, std::int64_t vocabularySize, std::int64_t sequenceLengthTokens);

  struct Sequence {
    const TokenFile* file;
    std::int64_t number;                 ///< in the file
    std::optional<std::int64_t> source;  ///< of a mixture
  };
  /// The sequence at a place of a step's global batch, both counted from 0. Every file is read whole, in an order of its
  /// own, before a sequence of it comes again. In a mixture the places of a batch are shuffled, so that no rank gets the
  /// same sources in every step.
  Sequence at(std::uint64_t seed, std::int64_t batch, std::int64_t place, std::int64_t batchSequences) const;

  /// Of all files.
  std::int64_t tokenCount() const;
  /// Tells content apart: see digestOf. Of a mixture the shares count too.
  std::string digest() const;
  bool isMixture() const { return pattern_ != nullptr; }
  /// As messages name it: "token file PATH", or of a mixture "the mixture of 3 files, first PATH,".
  std::string words() const;
  /// The file, or the first of a mixture.
  const std::string& path() const { return files_.front()->path(); }

 private:
  std::vector<std::unique_ptr<TokenFile>> files_;
  std::vector<std::int64_t> shares_;
  std::unique_ptr<MixturePattern> pattern_;  ///< none where there is one file
};

}  // namespace internevo::trainer
