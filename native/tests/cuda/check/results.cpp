#include "cuda/check/results.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>

namespace internevo::check {

Results::~Results() {
  if (file_ >= 0) close(file_);
}

bool Results::open(const std::string& path, bool resume, const Json& identity, std::string* message) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0)
    return *message =
               "--out " + path + " cannot be written: " + std::strerror(errno) + "; give a path that can",
           false;
  std::string text;
  char buffer[65536];
  for (ssize_t count; (count = ::read(file_, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  if (!text.empty() && !resume)
    return *message = "--out " + path + " has results already; add --resume, or name another file", false;
  read(text);
  if (!identity_.is_null() && identity_ != identity) {
    return *message = "--out " + path + " is of " + identity_.dump() + ", this is " + identity.dump() +
                      "; name another file",
           false;
  }
  // A line that was being written when its process or the machine ended.
  if (const std::size_t whole = text.rfind('\n'); !text.empty() && whole != text.size() - 1) {
    static_cast<void>(!ftruncate(file_, static_cast<off_t>(whole == std::string::npos ? 0 : whole + 1)));
  }
  return true;
}

void Results::read(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const Json each = Json::parse(line, nullptr, false);
    if (!each.is_object()) continue;
    const std::string event = each.value("event", ""), name = each.value("case", "");
    if (event == "run" && each.contains("identity")) identity_ = each["identity"];
    if (event == "begun") ++begun_[name];
    if (event == "case") ended_[name] = each, begun_[name] = 0;
  }
}

void Results::append(const Json& line) {
  // Bytes that are not UTF-8 come from what a program wrote.
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  struct stat before {};
  const bool known = fstat(file_, &before) == 0;
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = write(file_, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    written += static_cast<std::size_t>(count);
  }
  if (written == text.size() && fsync(file_) == 0) return;
  const std::string why = std::strerror(errno);
  if (known) static_cast<void>(!ftruncate(file_, before.st_size));
  if (line.value("event", "") == "begun") return;
  ++lost_;
  std::fprintf(stderr, "the file of results takes no more (%s); a line that belongs into it is on stdout\n",
               why.c_str());
  std::printf("%s", text.c_str());
  std::fflush(stdout);
}

const Json* Results::ended(const std::string& name) const {
  const auto found = ended_.find(name);
  return found == ended_.end() ? nullptr : &found->second;
}

int Results::begunOnly(const std::string& name) const {
  const auto found = begun_.find(name);
  return found == begun_.end() ? 0 : found->second;
}

}  // namespace internevo::check
