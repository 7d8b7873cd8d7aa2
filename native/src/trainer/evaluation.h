// Held-out data, and the loss on it.
#pragma once

#include <cstdint>

#include "trainer/config.h"
#include "trainer/failure.h"
#include "trainer/token_file.h"

namespace internevo::trainer {

struct Evaluation {
  double loss = 0;          ///< mean over the real tokens of all its batches
  std::int64_t tokens = 0;  ///< real tokens: those whose target is counted
  double seconds = 0;
};

/// Whether the run evaluates the weights of a step (0: those that training begins with). A run that is resumed asks for the step
/// that it goes on from too: who was stopped there may not have come to it.
bool evaluatesAt(const Config& config, std::int64_t step);

/// Opens the held-out data, where the configuration has such. Errors: Failure dataError, badConfig, also when it has fewer sequences
/// than its batches need.
void openValidationData(const Config& config, TokenFile* data);

/// Calls what reads held-out data: its errors then name validation.data. Errors: Failure of the call.
template <typename Read>
void readingValidationData(const Read& read) {
  try {
    read();
  } catch (const Failure& failure) {
    Problem problem = failure.problem();
    if (problem.field == "data.path" || problem.field == "data.format" ||
        problem.field == "data.endOfDocumentToken")
      problem.field = "validation." + problem.field;
    throw Failure(std::move(problem));
  }
}

}  // namespace internevo::trainer
