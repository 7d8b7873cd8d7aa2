// The file of results: a line of JSON for every run of the check and for every case, which is on the disk before the next case begins.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace internevo::check {

using Json = nlohmann::json;

class Results {
 public:
  Results() = default;
  ~Results();
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  /// Opens or makes the file. With `resume` what it has is read; without, it must be empty or new.
  /// False with *message where it cannot be, or is of another build or device than `identity` says.
  bool open(const std::string& path, bool resume, const Json& identity, std::string* message);

  /// A line at the end of the file and on the disk, or nothing: where there is no room, half a line is taken back, and stdout gets it.
  void append(const Json& line);
  /// Lines that the file has no room for.
  int lost() const { return lost_; }

  /// The case's last line, or null.
  const Json* ended(const std::string& name) const;
  /// Times that it began and has no line of its end: whoever ran it ended with it.
  int begunOnly(const std::string& name) const;

 private:
  void read(const std::string& text);

  int file_ = -1, lost_ = 0;
  std::map<std::string, Json> ended_;
  std::map<std::string, int> begun_;
  Json identity_;
};

}  // namespace internevo::check
