// Runs cases one after the other, each in a process of its own with a time of its own, and writes a line for each at once.
#pragma once

#include <string>
#include <vector>

#include "cuda/check/case.h"

namespace internevo::check {

struct DriverOptions {
  std::vector<std::string> commands;       ///< none: all
  std::vector<std::string> only, without;  ///< names of cases, or beginnings of names that end with a dot
  std::string out = "gpu-check.jsonl";
  std::string kit;  ///< the file of the measurement kit; empty: none
  std::string commandLine;
  double deadlineSeconds = 0;  ///< 0: kCommandSeconds for each command that runs
  bool resume = false, small = false;
};

/// Cases that the options name. Empty with *message for a name that no case has.
std::vector<CheckCase> chosen(const std::vector<CheckCase>& all, const DriverOptions& options,
                              std::string* message);

/// Exit status: 0 all passed or absent; 1 a case failed, or was left out for time; 2 no device, or the file cannot be used; 3 a line could
/// not be written; 128 + signal when it was told to end.
int drive(const std::vector<CheckCase>& cases, const DriverOptions& options);

}  // namespace internevo::check
