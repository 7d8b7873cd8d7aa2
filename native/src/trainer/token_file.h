// Memory-mapped token file. Layout, little endian: bytes 0-7 "IEVOTOK\0", u32 version = 1, u32 bytesPerToken (2 or 4),
// u64 tokenCount, u32 vocabularySize, zeros to byte 64; then the tokens.
#pragma once

#include <cstdint>
#include <string>

namespace internevo::trainer {

class TokenFile {
 public:
  TokenFile() = default;
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  /// Errors: Failure dataError naming file, what was expected and what was found (missing, not a token file,
  /// truncated or too long, fewer tokens than one sequence needs, a vocabulary larger than the model's).
  void open(const std::string& path, std::int64_t vocabularySize, std::int64_t sequenceLengthTokens);

  std::int64_t tokenCount() const { return tokenCount_; }
  /// Sequences of S + 1 tokens at stride S (the targets are shifted by one).
  std::int64_t sequenceCount() const { return (tokenCount_ - 1) / sequenceLength_; }

  /// Tokens [offset, offset + count) of a sequence, and those one further on.
  /// Errors: Failure dataError naming file, byte offset and value of a token outside the vocabulary.
  void read(std::int64_t sequence, std::int64_t offset, std::int64_t count, std::int32_t* tokens,
            std::int32_t* targets) const;

  static constexpr std::int64_t kHeaderBytes = 64;

 private:
  std::int32_t tokenAt(std::int64_t index) const;

  std::string path_;
  const unsigned char* map_ = nullptr;
  std::int64_t mapBytes_ = 0, tokenCount_ = 0, bytesPerToken_ = 2, vocabularySize_ = 0, sequenceLength_ = 1;
};

/// Sequence of the file that stands at position `draw` of the endless stream of a run: each epoch is a permutation of
/// all sequences of its own. draw = (step − 1)·globalBatchSequences + place in the global batch.
std::int64_t sequenceOfDraw(std::uint64_t seed, std::int64_t sequenceCount, std::int64_t draw);

}  // namespace internevo::trainer
