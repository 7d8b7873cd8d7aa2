#include "cuda/check/children.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

namespace internevo::check {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kStuckSeconds = 5;
constexpr std::size_t kKeptErrors = 64 << 10;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }
void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }

/// Parent of each process.
std::map<pid_t, pid_t> parents() {
  std::map<pid_t, pid_t> found;
  DIR* const directory = opendir("/proc");
  if (directory == nullptr) return found;
  while (const dirent* const entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::stringstream text;
    text << std::ifstream("/proc/" + name + "/stat").rdbuf();
    const std::string stat = text.str();
    const std::size_t close = stat.rfind(')');
    if (close == std::string::npos) continue;
    char state = 0;
    pid_t parent = 0;
    std::istringstream(stat.substr(close + 1)) >> state >> parent;
    if (state != 'Z' && state != 'X') found[std::stoi(name)] = parent;
  }
  closedir(directory);
  return found;
}

bool descends(const std::map<pid_t, pid_t>& all, pid_t pid, pid_t ancestor) {
  for (int depth = 0; depth < 64; ++depth) {
    const auto found = all.find(pid);
    if (found == all.end()) return false;
    if (found->second == ancestor) return true;
    pid = found->second;
  }
  return false;
}

void signalAll(pid_t root, int number) {
  const auto all = parents();
  for (const auto& [pid, parent] : all) {
    if (descends(all, pid, root)) kill(pid, number);
  }
  kill(-root, number);
  kill(root, number);
}

/// True when it has ended, or was never there.
bool ended(pid_t pid, int* status) {
  const pid_t got = waitpid(pid, status, WNOHANG);
  return got == pid || (got < 0 && errno == ECHILD);
}

bool endedWithin(pid_t pid, double seconds, int* status) {
  for (const auto start = Clock::now(); since(start) < seconds; pause()) {
    if (ended(pid, status)) return true;
  }
  return false;
}

}  // namespace

void adoptOrphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

Started start(const std::vector<std::string>& arguments, bool errorsApart) {
  std::vector<char*> argv;
  for (const std::string& each : arguments) argv.push_back(const_cast<char*>(each.c_str()));
  argv.push_back(nullptr);
  int output[2] = {-1, -1}, errors[2] = {-1, -1}, results[2] = {-1, -1};
  Started started;
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(results, O_CLOEXEC) != 0 ||
      (errorsApart && pipe2(errors, O_CLOEXEC) != 0)) {
    for (const int each : {output[0], output[1], errors[0], errors[1], results[0], results[1]}) {
      if (each >= 0) close(each);
    }
    return started;
  }
  const pid_t parent = getpid();
  started.pid = fork();
  if (started.pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kNotStarted);
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    dup2(output[1], STDOUT_FILENO);
    dup2(errorsApart ? errors[1] : output[1], STDERR_FILENO);
    if (results[1] == kResultDescriptor) {
      fcntl(kResultDescriptor, F_SETFD, 0);
    } else {
      dup2(results[1], kResultDescriptor);
    }
    execvp(argv[0], argv.data());
    const std::string message = std::string(argv[0]) + ": " + std::strerror(errno) + "\n";
    static_cast<void>(!write(STDERR_FILENO, message.data(), message.size()));
    _exit(kNotStarted);
  }
  for (const int each : {output[1], errors[1], results[1]}) {
    if (each >= 0) close(each);
  }
  started.output = output[0], started.errors = errors[0], started.results = results[0];
  for (const int each : {started.output, started.errors, started.results}) {
    if (each >= 0) fcntl(each, F_SETFL, O_NONBLOCK);
  }
  return started;
}

bool endAll(pid_t pid, double graceSeconds, int* status) {
  bool over = ended(pid, status);
  if (!over) signalAll(pid, SIGTERM), over = endedWithin(pid, graceSeconds, status);
  if (!over) signalAll(pid, SIGKILL), over = endedWithin(pid, kStuckSeconds, status);
  kill(-pid, SIGKILL);  // a number is not given to another while its group has a member
  return over;
}

void endOrphans(const std::vector<pid_t>& keep) {
  const pid_t own = getpid();
  // What is killed gives its own children away, so until there are none.
  for (int round = 0; round < 50; ++round) {
    bool any = false;
    for (const auto& [pid, parent] : parents()) {
      if (parent != own || std::find(keep.begin(), keep.end(), pid) != keep.end()) continue;
      any = true;
      kill(pid, SIGKILL);
    }
    while (true) {  // only of those that ended: whoever is kept is waited for by others
      siginfo_t info{};
      if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
      if (std::find(keep.begin(), keep.end(), info.si_pid) != keep.end()) break;
      waitpid(info.si_pid, nullptr, WNOHANG);
    }
    if (!any) return;
    pause();
  }
}

bool drain(int descriptor, std::string* text) {
  char buffer[16384];
  for (;;) {
    const ssize_t count = read(descriptor, buffer, sizeof buffer);
    if (count > 0) {
      text->append(buffer, static_cast<std::size_t>(count));
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else {
      return count < 0 && errno == EAGAIN;
    }
  }
}

std::string statusText(int status) {
  if (WIFEXITED(status)) return "status " + std::to_string(WEXITSTATUS(status));
  return "signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
}

std::string Ended::lastError() const {
  const std::size_t end = errors.find_last_not_of(" \n");
  if (end == std::string::npos) return "";
  const std::size_t line = errors.rfind('\n', end);
  return errors.substr(line == std::string::npos ? 0 : line + 1,
                       end - (line == std::string::npos ? 0 : line + 1) + 1);
}

Ended run(const std::vector<std::string>& arguments, double limitSeconds,
          const std::function<void(const std::string&)>& onLine) {
  Ended result;
  const auto begun = Clock::now();
  Started child = start(arguments, true);
  if (child.pid < 0) return result.status = kNotStarted, result.errors = "no process can be started", result;
  close(child.results);
  std::size_t told = 0;
  int status = 0;
  bool timedOut = false;
  while (child.output >= 0 || child.errors >= 0) {
    pollfd open[2] = {{child.output, POLLIN, 0}, {child.errors, POLLIN, 0}};
    poll(open, 2, 100);
    for (int* descriptor : {&child.output, &child.errors}) {
      if (*descriptor >= 0 &&
          !drain(*descriptor, descriptor == &child.output ? &result.output : &result.errors))
        close(*descriptor), *descriptor = -1;
    }
    for (std::size_t end; onLine && (end = result.output.find('\n', told)) != std::string::npos;
         told = end + 1) {
      onLine(result.output.substr(told, end - told));
    }
    if (result.errors.size() > 2 * kKeptErrors) result.errors.erase(0, result.errors.size() - kKeptErrors);
    timedOut = since(begun) > limitSeconds;
    if (timedOut) break;
  }
  for (const int each : {child.output, child.errors}) {
    if (each >= 0) close(each);
  }
  if (!timedOut) timedOut = !endedWithin(child.pid, std::max(0.1, limitSeconds - since(begun)), &status);
  if (timedOut) {
    endAll(child.pid, 1, &status);
    result.status = kTimedOut;
  } else {
    kill(-child.pid, SIGKILL);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return result;
}

}  // namespace internevo::check
