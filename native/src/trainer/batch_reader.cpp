#include "trainer/batch_reader.h"

#include <algorithm>
#include <numeric>

#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

std::int32_t* at(const View& view, std::int64_t element) {
  return view.empty() ? nullptr : view.as<std::int32_t>() + element;
}

}  // namespace

BatchReader::BatchReader(const Config& config, const TrainingData& data, const SequencePlace& place,
                         int dataIndex, const BatchViews& views, MemorySpace& memory)
    : config_(config),
      data_(data),
      own_(ownTokens(config, place)),
      attention_(attentionTokens(config, place)),
      turnsInAttention_(config.model.queryKeyNorm),
      dataIndex_(dataIndex),
      memory_(memory),
      target_(views),
      views_(views) {
  const std::int64_t own = config_.plan.microBatchSize * own_.rows();
  views_.tokens = prepared(target_.tokens, own), views_.targets = prepared(target_.targets, own);
  const std::int64_t positions = config_.plan.microBatchSize * turned().rows();
  views_.positions = prepared(target_.positions, positions);
  views_.firstKeys = prepared(target_.firstKeys, config_.plan.microBatchSize * attention_.rows());
  const std::int64_t documents =
      std::min(config_.data.maxDocumentsPerSequence, config_.sequenceLengthTokens) + 1;
  views_.documentStarts = prepared(target_.documentStarts, documents);
  if (views_.positions.empty()) return;
  for (std::int64_t sequence = 0, row = 0; sequence < config_.plan.microBatchSize; ++sequence) {
    for (int i = 0; i < turned().count; ++i) {
      const Stretch& s = turned().stretches[static_cast<std::size_t>(i)];
      std::iota(at(views_.positions, row), at(views_.positions, row + s.count),
                static_cast<std::int32_t>(s.first));
      row += s.count;
    }
  }
  upload(views_.positions, target_.positions, positions);
}

View BatchReader::prepared(const View& view, std::int64_t elements) {
  if (view.empty() || memory_.hostReads()) return view;
  staging_.emplace_back(static_cast<std::size_t>(elements));
  return {staging_.back().data(), view.type};
}

void BatchReader::upload(const View& from, const View& to, std::int64_t elements) {
  if (!to.empty() && to.data != from.data)
    require(memory_.upload(to.data, from.data, elements * bytesPerElement(to.type)));
}

void BatchReader::read(std::int64_t step, std::int64_t microBatch) {
  const std::int64_t sequences = config_.plan.globalBatchSequences();
  fill({&data_, step, microBatch}, [&](std::int64_t place, std::int64_t row) {
    const TrainingData::Sequence at = data_.at(config_.seed, step - 1, place, sequences);
    readingSource(at.source, [&] { readSequence(*at.file, at.number, row); });
  });
}

void BatchReader::readInOrder(const TokenFile& data, std::int64_t batch, std::int64_t microBatch) {
  const std::int64_t first = batch * config_.plan.globalBatchSequences();
  fill({&data, batch, microBatch},
       [&](std::int64_t place, std::int64_t row) { readSequence(data, first + place, row); });
}

template <typename ReadAt>
void BatchReader::fill(const Held& wanted, const ReadAt& readAt) {
  if (held_ == wanted) return;
  held_ = {};
  const PlanConfig& p = config_.plan;
  const std::int64_t first = wanted.microBatch * p.microBatchSize * p.dataParallel;
  for (std::int64_t row = 0; row < p.microBatchSize; ++row) {
    readAt(first + dataIndex_ * p.microBatchSize + row, row);
  }
  const std::int64_t own = p.microBatchSize * own_.rows();
  upload(views_.tokens, target_.tokens, own), upload(views_.targets, target_.targets, own);
  if (config_.packsDocuments())
    upload(views_.positions, target_.positions, p.microBatchSize * turned().rows());
  upload(views_.firstKeys, target_.firstKeys, p.microBatchSize * attention_.rows());
  held_ = wanted;
}

void BatchReader::readSequence(const TokenFile& data, std::int64_t sequence, std::int64_t row) {
  const bool documents = !views_.documentStarts.empty();
  std::int32_t* const starts = at(views_.documentStarts, 0);
  const std::int64_t count = documents ? data.documents(sequence, starts) : 0;
  std::int64_t to = row * own_.rows();
  for (int i = 0; i < own_.count; ++i) {
    const Stretch& s = own_.stretches[static_cast<std::size_t>(i)];
    if (!views_.tokens.empty())
      data.read(sequence, s.first, s.count, at(views_.tokens, to), at(views_.targets, to));
    if (documents && !turnsInAttention_)
      expandDocuments(starts, count, s.first, s.count, nullptr, at(views_.positions, to));
    to += s.count;
  }
  if (!documents) return;
  to = row * attention_.rows();
  for (int i = 0; i < attention_.count; ++i) {
    const Stretch& s = attention_.stretches[static_cast<std::size_t>(i)];
    expandDocuments(starts, count, s.first, s.count, at(views_.firstKeys, to),
                    turnsInAttention_ ? at(views_.positions, to) : nullptr);
    to += s.count;
  }
}

std::int64_t BatchReader::realTokens() const {
  if (views_.targets.empty()) return 0;
  const std::int32_t* const first = at(views_.targets, 0);
  return std::count_if(first, first + config_.plan.microBatchSize * own_.rows(),
                       [](std::int32_t target) { return target >= 0; });
}

}  // namespace internevo::trainer
