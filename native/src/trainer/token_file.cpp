#include "trainer/token_file.h"

#include <algorithm>

#include "trainer/failure.h"
#include "trainer/random.h"

namespace internevo::trainer {

namespace {
constexpr std::int64_t kStretch = 256;  // tokens that are looked at together
}

void TokenFile::open(const DataConfig& config, std::int64_t vocabularySize,
                     std::int64_t sequenceLengthTokens) {
  config_ = config, vocabularySize_ = vocabularySize, sequenceLength_ = sequenceLengthTokens;
  if (config.endOfDocumentToken &&
      (*config.endOfDocumentToken < 0 || *config.endOfDocumentToken >= vocabularySize)) {
    const std::string value = std::to_string(*config.endOfDocumentToken);
    throw Failure(Problem{StatusCode::badConfig,
                          "data.endOfDocumentToken " + value + " is outside the vocabulary of " +
                              std::to_string(vocabularySize),
                          "data.endOfDocumentToken", value, "give the token that ends a document"});
  }
  source_ = openTokenSource(config, vocabularySize);
  const std::string& path = source_->path();
  if (tokenCount() < sequenceLength_ + 1) {
    refuseData(path,
               "has " + std::to_string(tokenCount()) + " tokens; one sequence needs " +
                   std::to_string(sequenceLength_ + 1),
               "give more data or a shorter sequenceLengthTokens");
  }
  if (config.packing == DataConfig::Packing::documents && !config.endOfDocumentToken &&
      !source_->knowsDocuments()) {
    refuseData(path, "does not say where documents begin",
               "set data.endOfDocumentToken, write the file with a document index (version 2), or set "
               "data.packing to none");
  }
}

/// The first token in (position, limit] that starts a document, or something beyond.
std::int64_t TokenFile::nextDocumentStart(std::int64_t position, std::int64_t limit) const {
  if (config_.packing == DataConfig::Packing::none) return limit + 1;
  if (!config_.endOfDocumentToken) return source_->nextDocumentStart(position);
  std::int32_t tokens[kStretch];
  for (std::int64_t at = position; at < limit; at += kStretch) {  // token i starts one when i − 1 ends one
    const std::int64_t count = std::min(kStretch, limit - at);
    source_->read(at, count, tokens);
    const auto* const found =
        std::find(tokens, tokens + count, static_cast<std::int32_t>(*config_.endOfDocumentToken));
    if (found != tokens + count) return at + (found - tokens) + 1;
  }
  return limit + 1;
}

void TokenFile::read(std::int64_t sequence, std::int64_t offset, std::int64_t count, std::int32_t* tokens,
                     std::int32_t* targets) const {
  const std::int64_t first = sequence * sequenceLength_ + offset, last = first + count;
  source_->read(first, count, tokens);
  std::copy(tokens + 1, tokens + count, targets);
  source_->read(last, 1, targets + count - 1);
  for (std::int64_t at = nextDocumentStart(first, last); at <= last; at = nextDocumentStart(at, last)) {
    targets[at - first - 1] = -1;
  }
}

std::int64_t TokenFile::maxDocuments() const {
  return config_.packing == DataConfig::Packing::none
             ? 1
             : std::min(config_.maxDocumentsPerSequence, sequenceLength_);
}

std::int64_t TokenFile::documents(std::int64_t sequence, std::int32_t* starts) const {
  const std::int64_t first = sequence * sequenceLength_, last = first + sequenceLength_ - 1;
  std::int64_t count = 1;
  starts[0] = 0;
  for (std::int64_t at = nextDocumentStart(first, last); at <= last; at = nextDocumentStart(at, last)) {
    if (count == maxDocuments()) {
      const std::string value = std::to_string(config_.maxDocumentsPerSequence);
      const std::int64_t all = count + borders(at - 1, last - at + 1);
      throw Failure(Problem{StatusCode::dataError,
                            "token file " + source_->path() + " has " + std::to_string(all) +
                                " documents in sequence " + std::to_string(sequence) + " (tokens " +
                                std::to_string(first) + " to " + std::to_string(last) +
                                "); data.maxDocumentsPerSequence is " + value,
                            "data.maxDocumentsPerSequence", value,
                            "set it to " + std::to_string(all) + " or more, or join short documents"});
    }
    starts[count++] = static_cast<std::int32_t>(at - first);
  }
  starts[count] = static_cast<std::int32_t>(sequenceLength_);
  return count;
}

/// Document starts among tokens (first, first + count].
std::int64_t TokenFile::borders(std::int64_t first, std::int64_t count) const {
  std::int64_t result = 0;
  for (std::int64_t at = nextDocumentStart(first, first + count); at <= first + count;
       at = nextDocumentStart(at, first + count)) {
    ++result;
  }
  return result;
}

std::int64_t TokenFile::realTokens(std::int64_t sequence) const {
  return sequenceLength_ - borders(sequence * sequenceLength_, sequenceLength_);
}

void expandDocuments(const std::int32_t* starts, std::int64_t count, std::int64_t offset, std::int64_t rows,
                     std::int32_t* firstKeys, std::int32_t* positions) {
  std::int64_t document = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t position = offset + row;
    while (document + 1 < count && starts[document + 1] <= position) ++document;
    if (firstKeys != nullptr) firstKeys[row] = starts[document];
    if (positions != nullptr) positions[row] = static_cast<std::int32_t>(position - starts[document]);
  }
}

std::int64_t sequenceOfDraw(std::uint64_t seed, std::int64_t sequenceCount, std::int64_t draw) {
  const auto count = static_cast<std::uint64_t>(sequenceCount), at = static_cast<std::uint64_t>(draw);
  const std::uint64_t key = streamKey(seed, "data") + mix64(at / count);
  return static_cast<std::int64_t>(permute(key, count, at % count));
}

}  // namespace internevo::trainer
