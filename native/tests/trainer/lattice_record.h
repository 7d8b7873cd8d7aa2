// Which part of the lattice a run takes, and the record of what was run, so that an interrupted run goes on.
#pragma once

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include "checkpoint/file.h"
#include "support.h"

namespace internevo::trainer::testing {

/// What the environment asks for.
struct Asked {
  bool whole = false, overlaps = false;
  int part = 0, parts = 1;
  std::string record, program;  ///< the file, and the checksum of this program
};
inline Asked asked() {
  Asked asked;
  const auto value = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  const std::string which = value("INTERNEVO_LATTICE"), part = value("INTERNEVO_LATTICE_PART");
  asked.whole = which == "whole" || which == "whole-unoverlapped";
  asked.overlaps = which == "whole";
  if (!which.empty() && !asked.whole) {
    throw std::runtime_error("INTERNEVO_LATTICE is " + which + "; give whole, whole-unoverlapped or nothing");
  }
  if (!part.empty()) {
    int read = -1;
    if (!asked.whole || std::sscanf(part.c_str(), "%d/%d%n", &asked.part, &asked.parts, &read) != 2 ||
        read != static_cast<int>(part.size()) || asked.part < 1 || asked.part > asked.parts) {
      throw std::runtime_error("INTERNEVO_LATTICE_PART is " + part +
                               "; give i/n with 1 <= i <= n, of the whole lattice");
    }
    --asked.part;
  }
  asked.record = value("INTERNEVO_LATTICE_RECORD");
  if (!asked.record.empty()) asked.program = std::to_string(checksumOf(readFile("/proc/self/exe")));
  return asked;
}

/// Which part of which model it is, and by which program: the begin of its line in the record.
inline std::string recordKey(const Asked& asked, const std::string& model, int ranks) {
  return "{\"program\": \"" + asked.program + "\", \"model\": \"" + model +
         "\", \"ranks\": " + std::to_string(ranks) + ", \"part\": \"" + std::to_string(asked.part + 1) + "/" +
         std::to_string(asked.parts) + "\", \"overlaps\": " + (asked.overlaps ? "true" : "false") + ", ";
}
inline bool isRecorded(const Asked& asked, const std::string& key) {
  int rank = 0, found = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0 && !asked.record.empty()) {
    std::ifstream file(asked.record);
    for (std::string line; std::getline(file, line);) {
      found |= line.rfind(key, 0) == 0 && line.find("\"failed\": false") != std::string::npos;
    }
  }
  MPI_Bcast(&found, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return found != 0;
}
inline void appendRecord(const Asked& asked, const std::string& line) {
  std::ofstream(asked.record, std::ios::app) << line;
}

}  // namespace internevo::trainer::testing
