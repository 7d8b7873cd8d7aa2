// Errors inside the trainer. They are thrown to the program's one boundary (main, or a test), which turns them into an
// event and an exit code; the operators and collectives below return Status and never throw.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "internevo/status.h"

namespace internevo::trainer {

/// What an error event says. Empty members are left out of the event; `valueJson` is JSON text.
struct Problem {
  StatusCode code = StatusCode::internal;
  std::string message;
  std::string field;
  std::string valueJson;
  std::string remedy;
};

class Failure : public std::exception {
 public:
  explicit Failure(Problem problem) : problem_(std::move(problem)) {}
  Failure(StatusCode code, std::string message) {
    problem_.code = code, problem_.message = std::move(message);
  }

  const Problem& problem() const noexcept { return problem_; }
  const char* what() const noexcept override { return problem_.message.c_str(); }

 private:
  Problem problem_;
};

/// Throws the error of a call below.
inline void require(const Status& status) {
  if (!status.ok()) throw Failure(status.code(), status.message());
}

/// Exit code of the program for an error (src/protocol/protocol.json).
int exitCodeOf(StatusCode code) noexcept;

}  // namespace internevo::trainer
