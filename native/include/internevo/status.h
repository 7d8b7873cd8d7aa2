// Typed result of every call that can fail. The library neither throws, aborts nor prints.
#pragma once

#include <string>
#include <utility>

namespace internevo {

enum class StatusCode {
  ok,
  badConfig,
  planUnsupported,
  outOfMemory,
  dataError,
  checkpointError,
  communicationError,
  internal,
  notFinite,  ///< a loss or a gradient of the run itself
};

/// Name of a code as it appears in events ("bad_config", "out_of_memory", ...).
const char* statusCodeName(StatusCode code) noexcept;

/// A code and, for errors only, a message that names the field, its value and the remedy.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status success() { return {}; }

  bool ok() const noexcept { return code_ == StatusCode::ok; }
  StatusCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }

 private:
  StatusCode code_ = StatusCode::ok;
  std::string message_;
};

}  // namespace internevo

/// Returns from the enclosing function when `expression` is not ok.
#define INTERNEVO_RETURN_IF_ERROR(expression)           \
  do {                                                  \
    ::internevo::Status internevoStatus = (expression); \
    if (!internevoStatus.ok()) return internevoStatus;  \
  } while (false)
