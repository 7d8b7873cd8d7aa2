// Which part of a logical tensor something holds: a rectangle (tensor parallelism), and of its elements in row-major
// order a flat range (sharding). Two such parts of the same tensor share runs of elements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace internevo::trainer {

/// [rows, columns]; a vector is [1, width].
struct TensorShape {
  std::int64_t rows = 1, columns = 0;
  std::int64_t elements() const { return rows * columns; }
  bool operator==(const TensorShape&) const = default;
};

/// Rows [row, row + rows) and columns [column, column + columns) of a tensor.
struct Rectangle {
  std::int64_t row = 0, column = 0, rows = 0, columns = 0;
  std::int64_t elements() const { return rows * columns; }
  bool operator==(const Rectangle&) const = default;
};

/// Elements [begin, end) of a rectangle.
struct Slice {
  Rectangle rectangle;
  std::int64_t begin = 0, end = 0;
  std::int64_t elements() const { return end - begin; }
  bool operator==(const Slice&) const = default;
};

inline Slice wholeOf(const TensorShape& shape) {
  return {{0, 0, shape.rows, shape.columns}, 0, shape.elements()};
}

/// `elements` that lie one behind the other in both slices, counted from the begin of each.
struct Run {
  std::int64_t source = 0, target = 0, elements = 0;
  bool operator==(const Run&) const = default;
};

/// What two slices of one tensor share, ascending, neighbours joined.
std::vector<Run> sharedRuns(const Slice& source, const Slice& target);

/// Rows of the tensor that a slice touches: [first, last].
std::int64_t firstRow(const Slice& slice);
std::int64_t lastRow(const Slice& slice);

/// Why the slices do not cover every element of the tensor exactly once, or lie outside of it; empty when they do.
std::string coverageProblem(const TensorShape& shape, const std::vector<Slice>& slices);

/// "rows 0-4 columns 0-8, elements 3-17": the way problems name a slice.
std::string nameOf(const Slice& slice);

}  // namespace internevo::trainer
