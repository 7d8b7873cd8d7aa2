#include "trainer/training_data.h"

#include <numeric>

#include "checkpoint/file.h"
#include "trainer/random.h"

namespace internevo::trainer {

MixturePattern::MixturePattern(const std::vector<std::int64_t>& shares) : shares_(shares) {
  const std::int64_t cycle = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  std::vector<std::int64_t> given(shares.size(), 0);
  pattern_.reserve(static_cast<std::size_t>(cycle));
  for (std::int64_t draw = 0; draw < cycle; ++draw) {
    // The source that lacks most of its share so far. In whole numbers: ranks of different processors must agree.
    std::size_t most = 0;
    std::int64_t lacks = 0;
    for (std::size_t source = 0; source < shares.size(); ++source) {
      const std::int64_t here = shares[source] * (draw + 1) - cycle * given[source];
      if (source == 0 || here > lacks) most = source, lacks = here;
    }
    pattern_.push_back({static_cast<std::int64_t>(most), given[most]++});
  }
}

MixturePattern::Draw MixturePattern::at(std::int64_t draw) const {
  const Draw& place = pattern_[static_cast<std::size_t>(draw % cycle())];
  const std::int64_t share = shares_[static_cast<std::size_t>(place.source)];
  return {place.source, draw / cycle() * share + place.index};
}

void TrainingData::open(const DataConfig& config, std::int64_t vocabularySize,
                        std::int64_t sequenceLengthTokens) {
  files_.clear(), shares_.clear(), pattern_.reset();
  if (config.sources.empty()) {
    files_.push_back(std::make_unique<TokenFile>());
    files_.back()->open(config, vocabularySize, sequenceLengthTokens);
    return;
  }
  for (std::size_t source = 0; source < config.sources.size(); ++source) {
    DataConfig file = config;
    file.sources.clear();
    file.path = config.sources[source].path, file.format = config.sources[source].format;
    files_.push_back(std::make_unique<TokenFile>());
    readingSource(static_cast<std::int64_t>(source),
                  [&] { files_.back()->open(file, vocabularySize, sequenceLengthTokens); });
    shares_.push_back(config.sources[source].share);
  }
  pattern_ = std::make_unique<MixturePattern>(shares_);
}

TrainingData::Sequence TrainingData::at(std::uint64_t seed, std::int64_t batch, std::int64_t place,
                                        std::int64_t batchSequences) const {
  const std::int64_t first = batch * batchSequences;
  if (pattern_ == nullptr) {
    const TokenFile& file = *files_.front();
    return {&file, sequenceOfDraw(seed, file.sequenceCount(), first + place), std::nullopt};
  }
  const std::uint64_t key = streamKey(seed, "mixture") + mix64(static_cast<std::uint64_t>(batch));
  const auto shuffled = static_cast<std::int64_t>(
      permute(key, static_cast<std::uint64_t>(batchSequences), static_cast<std::uint64_t>(place)));
  const MixturePattern::Draw draw = pattern_->at(first + shuffled);
  const TokenFile& file = *files_[static_cast<std::size_t>(draw.source)];
  // An order of its own: sources of the same length are not to go side by side.
  const std::uint64_t own = mix64(seed + static_cast<std::uint64_t>(draw.source));
  return {&file, sequenceOfDraw(own, file.sequenceCount(), draw.index), draw.source};
}

std::int64_t TrainingData::tokenCount() const {
  std::int64_t tokens = 0;
  for (const auto& file : files_) tokens += file->tokenCount();
  return tokens;
}

std::string TrainingData::words() const {
  if (pattern_ == nullptr) return "token file " + path();
  return "the mixture of " + std::to_string(files_.size()) + " files, first " + path() + ",";
}

std::string TrainingData::digest() const {
  if (pattern_ == nullptr) return files_.front()->digest();
  std::string parts;
  for (std::size_t source = 0; source < files_.size(); ++source)
    parts += std::to_string(shares_[source]) + " " + files_[source]->digest() + "\n";
  return "xxh3:" + hexOf(checksumOf(parts));
}

}  // namespace internevo::trainer
