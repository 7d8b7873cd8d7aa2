// Processes that may trap, hang, or leave others behind: each has a time limit, and all that came of it is ended with it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace internevo::check {

/// Statuses of a process that was ended for its time, and of one that could not be started, as those of a shell.
constexpr int kTimedOut = 124, kNotStarted = 127;

/// Whatever loses its parent below this process becomes its child, so that endAll finds it.
void adoptOrphans();

struct Started {
  pid_t pid = -1;
  int output = -1;   ///< read end of stdout and stderr together, or of stdout alone; not blocking
  int errors = -1;   ///< read end of stderr, or -1
  int results = -1;  ///< read end of the process's descriptor kResultDescriptor
};
/// Where a case writes what it found.
constexpr int kResultDescriptor = 3;

/// Starts a program (found by PATH) in a group of its own; it is killed when this process ends. pid -1: it cannot be started.
Started start(const std::vector<std::string>& arguments, bool errorsApart);

/// Ends a process, its group and every descendant: SIGTERM, then SIGKILL after `graceSeconds`. Waits for the process at most five seconds
/// more: false where it is stuck in the kernel. *status is that of waitpid.
bool endAll(pid_t pid, double graceSeconds, int* status);
/// Children of this process that nobody started by `start`: what a program left behind. They are killed.
void endOrphans(const std::vector<pid_t>& keep);

struct Ended {
  int status = 0;                 ///< exit status, 128 + signal, kTimedOut or kNotStarted
  std::string output;             ///< of stdout
  std::string errors;             ///< the last 64 KiB of stderr
  std::string lastError() const;  ///< last line of stderr that is not empty
};
/// Runs a program to its end, or to that of its time.
Ended run(const std::vector<std::string>& arguments, double limitSeconds,
          const std::function<void(const std::string&)>& onLine = {});

/// Appends what can be read now; false at the end of the stream.
bool drain(int descriptor, std::string* text);
/// "status 3", "signal 11 (Segmentation fault)".
std::string statusText(int waitStatus);

}  // namespace internevo::check
