// Helpers of the tests that run on several ranks.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <vector>

#include "internevo/collectives.h"

namespace internevo::test {

inline int worldRank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
inline int worldSize() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}
inline Communicator makeGroup(const std::vector<int>& ranks, int tag = 1) {
  Communicator group;
  const Status status = Communicator::create(ranks, tag, &group);
  EXPECT_TRUE(status.ok()) << status.message();
  return group;
}
inline std::vector<int> allRanks() {
  std::vector<int> ranks(static_cast<std::size_t>(worldSize()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}
/// The world in reverse, so that index and rank differ.
inline std::vector<int> reversedRanks() {
  std::vector<int> ranks = allRanks();
  return {ranks.rbegin(), ranks.rend()};
}

struct Scratch {
  explicit Scratch(std::int64_t bytes) : storage(static_cast<std::size_t>(bytes) + 1) {}
  Workspace workspace() { return {storage.data(), static_cast<std::int64_t>(storage.size()) - 1}; }
  std::vector<std::byte> storage;
};

/// A tensor of float32 or bfloat16 seen as floats.
struct Tensor {
  Tensor(DataType t, std::int64_t n) : type(t), bytes(static_cast<std::size_t>(n * bytesPerElement(t))) {}
  View view() { return {bytes.data(), type}; }
  std::int64_t size() const { return static_cast<std::int64_t>(bytes.size()) / bytesPerElement(type); }
  float get(std::int64_t i) const {
    if (type == DataType::float32) return reinterpret_cast<const float*>(bytes.data())[i];
    return floatFromBfloat16(reinterpret_cast<const std::uint16_t*>(bytes.data())[i]);
  }
  void set(std::int64_t i, float value) {
    if (type == DataType::float32) {
      reinterpret_cast<float*>(bytes.data())[i] = value;
    } else {
      reinterpret_cast<std::uint16_t*>(bytes.data())[i] = bfloat16FromFloat(value);
    }
  }
  DataType type;
  std::vector<std::byte> bytes;
};

}  // namespace internevo::test
