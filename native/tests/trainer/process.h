// A child process whose standard output is read line by line. It is killed, with its group, when the object goes.
#pragma once

#include <sys/types.h>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace internevo::trainer::testing {

class Process {
 public:
  /// Starts arguments[0] (searched on PATH). Standard error goes to `errorPath`.
  Process(const std::vector<std::string>& arguments, const std::string& errorPath);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const;
  /// Reads lines until one satisfies the condition; false at the end of the output.
  /// Throws after a minute, with what the processes wait for: a program that hangs is a defect to be told.
  bool readUntil(const std::function<bool(const std::string&)>& condition);
  /// Reads what is left and waits. The exit status, 128 + n for signal n.
  int finish();
  const std::vector<std::string>& lines() const { return lines_; }
  /// Processes whose parent is this one, by their command name.
  std::vector<pid_t> children(const std::string& command) const;
  /// Waits until a process that is not ours is gone (or waits to be reaped); false after ten seconds.
  static bool gone(pid_t pid);

 private:
  bool readLine(std::string* line);
  std::string hung() const;
  bool hasChildren() const;
  pid_t pid_ = -1;
  int output_ = -1;
  std::chrono::steady_clock::time_point deadline_;
  bool hadChildren_ = false;
  int alone_ = 0;  ///< looks in a row that found no child of a process that had some
  std::string pending_;
  std::vector<std::string> lines_;
};

/// A program or a library: an absolute path as it is, another one from the folder of this program, as gpu-bundle has them.
std::string located(const char* path);

/// "mpirun -np N" with what a test machine with few cores, or a root user, needs.
std::vector<std::string> mpirunArguments(int ranks);

}  // namespace internevo::trainer::testing
