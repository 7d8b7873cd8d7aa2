// The tokens of a run as sequences of S + 1 tokens at stride S (the targets are shifted by one), whatever the file's
// format; with packing, also where documents begin inside a sequence.
#pragma once

#include "trainer/data_source.h"

namespace internevo::trainer {

class TokenFile {
 public:
  /// Errors: Failure dataError naming file, what was expected and what was found (see openTokenSource), fewer tokens
  /// than one sequence needs, packing without documents; badConfig for an endOfDocumentToken outside the vocabulary.
  void open(const DataConfig& config, std::int64_t vocabularySize, std::int64_t sequenceLengthTokens);

  std::int64_t tokenCount() const { return source_->tokenCount(); }
  std::int64_t sequenceCount() const { return (tokenCount() - 1) / sequenceLength_; }
  const std::string& path() const { return source_->path(); }
  /// See digestOf. It reads some MiB of the files.
  std::string digest() const { return digestOf(source_->files()); }

  /// Tokens [offset, offset + count) of a sequence, and those one further on; with packing, −1 where that one belongs
  /// to another document. Errors: Failure dataError naming file, byte offset and value of a token outside the
  /// vocabulary.
  void read(std::int64_t sequence, std::int64_t offset, std::int64_t count, std::int32_t* tokens,
            std::int32_t* targets) const;

  // ---- documents of a sequence; without packing a sequence is one ------------------------------------------------

  /// Documents that a sequence can have: int32 starts need one more.
  std::int64_t maxDocuments() const;
  /// starts[0] = 0 < starts[1] < … < starts[n] = S: cumulative lengths; returns n. A document that began before the
  /// sequence is cut at its start. Errors: Failure dataError naming data.maxDocumentsPerSequence when there are more.
  std::int64_t documents(std::int64_t sequence, std::int32_t* starts) const;
  /// Targets of a sequence that are counted (not −1). The loss of a step is divided by the sum over its global batch,
  /// which every rank can compute for itself.
  std::int64_t realTokens(std::int64_t sequence) const;

 private:
  std::int64_t nextDocumentStart(std::int64_t position, std::int64_t limit) const;
  std::int64_t borders(std::int64_t first, std::int64_t count) const;

  DataConfig config_;
  std::unique_ptr<TokenSource> source_;
  std::int64_t vocabularySize_ = 0, sequenceLength_ = 1;
};

/// Rows [offset, offset + rows) of a sequence of `count` documents with these cumulative starts: position of the first
/// token of the row's document (AttentionShape::firstKeys) and position inside the document (RopeShape::positions).
/// Either may be null.
void expandDocuments(const std::int32_t* starts, std::int64_t count, std::int64_t offset, std::int64_t rows,
                     std::int32_t* firstKeys, std::int32_t* positions);

/// Sequence of the file that stands at position `draw` of the endless stream of a run: each epoch is a permutation of
/// all sequences of its own. draw = (step − 1)·globalBatchSequences + place in the global batch.
std::int64_t sequenceOfDraw(std::uint64_t seed, std::int64_t sequenceCount, std::int64_t draw);

}  // namespace internevo::trainer
