#include "checkpoint/slices.h"

#include <algorithm>

namespace internevo::trainer {

namespace {

/// Columns [begin, end) of the tensor that a slice holds in one row, and the place of `begin` in the slice.
struct RowPart {
  std::int64_t begin, end, place;
};

RowPart partOf(const Slice& s, std::int64_t row) {
  const std::int64_t rowStart = (row - s.rectangle.row) * s.rectangle.columns;
  const std::int64_t from = std::max(s.begin, rowStart), to = std::min(s.end, rowStart + s.rectangle.columns);
  const std::int64_t shift = s.rectangle.column - rowStart;
  return {from + shift, to + shift, from - s.begin};
}

}  // namespace

std::int64_t firstRow(const Slice& s) { return s.rectangle.row + s.begin / s.rectangle.columns; }
std::int64_t lastRow(const Slice& s) { return s.rectangle.row + (s.end - 1) / s.rectangle.columns; }

std::vector<Run> sharedRuns(const Slice& source, const Slice& target) {
  std::vector<Run> runs;
  if (source.begin >= source.end || target.begin >= target.end) return runs;
  const std::int64_t last = std::min(lastRow(source), lastRow(target));
  for (std::int64_t row = std::max(firstRow(source), firstRow(target)); row <= last; ++row) {
    const RowPart a = partOf(source, row), b = partOf(target, row);
    const std::int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
    if (begin >= end) continue;
    const Run run{a.place + begin - a.begin, b.place + begin - b.begin, end - begin};
    Run* const before = runs.empty() ? nullptr : &runs.back();
    if (before != nullptr && before->source + before->elements == run.source &&
        before->target + before->elements == run.target) {
      before->elements += run.elements;
    } else {
      runs.push_back(run);
    }
  }
  return runs;
}

std::string nameOf(const Slice& s) {
  const auto range = [](std::int64_t first, std::int64_t count) {
    return std::to_string(first) + " to " + std::to_string(first + count - 1);
  };
  return "rows " + range(s.rectangle.row, s.rectangle.rows) + " columns " +
         range(s.rectangle.column, s.rectangle.columns) + ", elements " + range(s.begin, s.end - s.begin);
}

std::string coverageProblem(const TensorShape& shape, const std::vector<Slice>& slices) {
  std::vector<Slice> sorted = slices;
  std::int64_t held = 0;
  for (const Slice& s : sorted) {
    const Rectangle& r = s.rectangle;
    // Written so that no sum can overflow, whatever a file says.
    const bool inside = r.row >= 0 && r.column >= 0 && r.rows > 0 && r.columns > 0 && r.rows <= shape.rows &&
                        r.row <= shape.rows - r.rows && r.columns <= shape.columns &&
                        r.column <= shape.columns - r.columns && s.begin >= 0 && s.begin < s.end &&
                        s.end <= r.elements();
    if (!inside) return "the slice " + nameOf(s) + " is not inside it";
    held += s.elements();
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Slice& a, const Slice& b) { return firstRow(a) < firstRow(b); });
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::size_t k = i + 1; k < sorted.size() && firstRow(sorted[k]) <= lastRow(sorted[i]); ++k) {
      if (!sharedRuns(sorted[i], sorted[k]).empty()) {
        return "the slices " + nameOf(sorted[i]) + " and " + nameOf(sorted[k]) + " overlap";
      }
    }
  }
  if (held == shape.elements()) return "";
  return std::to_string(shape.elements() - held) + " of its " + std::to_string(shape.elements()) +
         " elements are in no file";
}

}  // namespace internevo::trainer
