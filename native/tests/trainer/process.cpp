#include "process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "../installed.h"

namespace internevo::trainer::testing {

Process::Process(const std::vector<std::string>& arguments, const std::string& errorPath) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("no process");
  if (pid_ == 0) {
    setpgid(0, 0);
    const int errors = open(errorPath.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(ends[1], STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  output_ = ends[0];
}

Process::~Process() {
  if (pid_ > 0) {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (output_ >= 0) close(output_);
}

void Process::send(int signal) const { kill(pid_, signal); }

bool Process::readLine(std::string* line) {
  for (;;) {
    const std::size_t end = pending_.find('\n');
    if (end != std::string::npos) {
      *line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      lines_.push_back(*line);
      return true;
    }
    pollfd ready{output_, POLLIN, 0};
    if (poll(&ready, 1, 500) == 0) {
      if (std::chrono::steady_clock::now() > deadline_) throw std::runtime_error(hung());
      // mpirun can stay when it has ended all ranks, for a lock of its own: what starts it has to end it then.
      const bool company = hasChildren();
      hadChildren_ = hadChildren_ || company, alone_ = hadChildren_ && !company ? alone_ + 1 : 0;
      if (alone_ == 10) kill(pid_, SIGKILL);
      continue;
    }
    char buffer[4096];
    const ssize_t count = read(output_, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    pending_.append(buffer, static_cast<std::size_t>(count));
  }
}

bool Process::readUntil(const std::function<bool(const std::string&)>& condition) {
  deadline_ = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::string line;
  while (readLine(&line)) {
    if (condition(line)) return true;
  }
  return false;
}

int Process::finish() {
  readUntil([](const std::string&) { return false; });
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

namespace {

struct Stat {
  std::string command;
  char state = 0;
  pid_t parent = 0;
};

/// "pid (command) state parent ..."; the command is cut at 15 characters. State 0 when there is no such process.
Stat statOf(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  const std::string stat = text.str();
  const std::size_t open = stat.find('('), close = stat.rfind(')');
  Stat result;
  if (open == std::string::npos || close == std::string::npos) return result;
  result.command = stat.substr(open + 1, close - open - 1);
  std::istringstream(stat.substr(close + 1)) >> result.state >> result.parent;
  return result;
}

}  // namespace

std::vector<pid_t> Process::children(const std::string& command) const {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const Stat stat = statOf(name);
    if (stat.parent == pid_ && stat.command == command.substr(0, 15)) found.push_back(std::stoi(name));
  }
  return found;
}

/// What every process of the group and its children did when the time was over.
std::string Process::hung() const {
  std::ostringstream text;
  text << "hangs for a minute; its last line: " << (lines_.empty() ? "(none)" : lines_.back());
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const Stat stat = statOf(name);
    if (std::stoi(name) != pid_ && stat.parent != pid_) continue;
    text << "\n  " << name << " " << stat.command << " " << stat.state << ", threads wait in";
    std::error_code ended;
    for (const auto& thread : std::filesystem::directory_iterator(entry.path() / "task", ended)) {
      std::string wait;
      std::ifstream(thread.path() / "wchan") >> wait;
      text << " " << (wait.empty() ? "?" : wait);
    }
  }
  return text.str();
}

bool Process::hasChildren() const {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const Stat stat = statOf(name);
    if (stat.parent == pid_ && stat.state != 'Z' && stat.state != 'X') return true;
  }
  return false;
}

bool Process::gone(pid_t pid) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < end) {
    const char state = statOf(std::to_string(pid)).state;
    if (state == 0 || state == 'Z' || state == 'X') return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

std::string located(const char* path) {
  if (*path == '/') return path;
  std::error_code unknown;
  return (std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path() / path).lexically_normal();
}

std::vector<std::string> mpirunArguments(int ranks) {
  return {located(built::kMpirun), "--oversubscribe", "--allow-run-as-root", "-np", std::to_string(ranks)};
}

}  // namespace internevo::trainer::testing
