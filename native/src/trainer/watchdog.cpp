#include "trainer/watchdog.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <thread>

#include "trainer/failure.h"
#include "trainer/watchdog_wire.h"

namespace internevo::trainer {

namespace {

using watchdog::Beat;
using watchdog::Hello;

double now() { return static_cast<double>(steadyNanoseconds()) * 1e-9; }

std::string place(int rank, const RankIdentity& identity) {
  return "rank " + std::to_string(rank) + " on " + identity.host + " (stage " +
         std::to_string(identity.stage) + ")";
}

std::string sentence(int rank, const RankIdentity& identity, LostRank::Kind kind, const std::string& last) {
  const char* what = kind == LostRank::Kind::died ? " died; it was last seen in "
                     : kind == LostRank::Kind::frozen
                         ? " is frozen: its process answers no more; it was last seen in "
                         : " is stuck in ";
  return place(rank, identity) + what + last;
}

/// Wakes a poll, from a destructor.
class Bell {
 public:
  Bell() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (descriptor_ < 0)
      throw Failure(StatusCode::communicationError,
                    "the watchdog has no descriptor; raise the limit of open files");
  }
  ~Bell() { close(descriptor_); }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(descriptor_, &one, sizeof one);
  }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

/// Bytes of a socket put together to messages of a fixed size.
template <typename Message>
class Inbox {
 public:
  /// Reads what is there, as long as `take` wants more. False when the other side has ended.
  template <typename Take>
  bool receive(int socket, const Take& take) {
    for (;;) {
      const ssize_t count = recv(socket, bytes_ + filled_, sizeof bytes_ - filled_, MSG_DONTWAIT);
      if (count == 0) return false;
      if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
      filled_ += static_cast<std::size_t>(count);
      if (filled_ < sizeof bytes_) continue;
      Message message;
      std::memcpy(&message, bytes_, sizeof message);
      filled_ = 0;
      if (!take(message)) return true;
    }
  }

 private:
  char bytes_[sizeof(Message)];
  std::size_t filled_ = 0;
};

}  // namespace

// ---- rank 0 --------------------------------------------------------------------------------------------------------

struct WatchdogHub::State {
  struct Member {
    int socket = -1;
    double heard = 0;
    bool left = false;
    Beat last{};
    Inbox<Beat> inbox;
  };
  struct Stranger {
    int socket = -1;
    double since = 0;
    Inbox<Hello> inbox;
  };

  std::vector<RankIdentity> ranks;
  WatchdogLimits limits;
  const Activity* own;
  std::function<void(const LostRank&)> lost;
  std::string token, endpoint;
  int listener = -1;
  Bell bell;
  std::vector<Member> members;  ///< by rank; [0] is unused
  std::vector<Stranger> strangers;
  std::int64_t progress = -1;
  double progressAt = 0;
  std::thread thread;

  ~State() {
    for (const Member& m : members) {
      if (m.socket >= 0) close(m.socket);
    }
    for (const Stranger& s : strangers) close(s.socket);
    if (listener >= 0) close(listener);
  }

  void accept();
  void welcome();
  bool hear(bool givenUp);
  bool checkSilence(double at);
  bool checkStall(double at);
  bool report(int rank, LostRank::Kind kind, const Beat& beat) {
    answer(true);  // what follows is the end of the job, and no loss of rank 0
    lost({rank, kind, sentence(rank, ranks[static_cast<std::size_t>(rank)], kind, watchdog::describe(beat))});
    return true;
  }
  void answer(bool goodbye);
  void run();
};

void WatchdogHub::State::accept() {
  for (;;) {
    const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) return;
    strangers.push_back({socket, now(), {}});
  }
}

/// Turns strangers that know the token into members; sends the others away.
void WatchdogHub::State::welcome() {
  for (std::size_t i = 0; i < strangers.size();) {
    Stranger& s = strangers[i];
    bool known = false, refused = false;
    const bool open = s.inbox.receive(s.socket, [&](const Hello& hello) {
      const bool valid = std::memcmp(hello.token, token.data(), watchdog::kTokenBytes) == 0 &&
                         hello.rank > 0 && hello.rank < static_cast<int>(ranks.size()) &&
                         members[static_cast<std::size_t>(hello.rank)].socket < 0;
      refused = !valid, known = valid;
      if (!valid) return false;
      Member& m = members[static_cast<std::size_t>(hello.rank)];
      m.socket = s.socket, m.heard = now();
      m.last.lane = -1;
      return false;
    });
    const bool expired = now() - s.since > limits.silenceSeconds;
    if (!known && open && !refused && !expired) {
      ++i;
      continue;
    }
    if (!known) close(s.socket);
    strangers.erase(strangers.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

/// True when a rank was lost, which has been reported, or when this one was, which the others have done.
bool WatchdogHub::State::hear(bool givenUp) {
  std::size_t died = 0;
  bool ending = false;  // a rank that said goodbye ends the job in its own way, and takes others with it
  for (std::size_t rank = 1; rank < members.size(); ++rank) {
    Member& m = members[rank];
    ending = ending || m.left;
    if (m.socket < 0 || m.left) continue;
    const bool open = m.inbox.receive(m.socket, [&](const Beat& beat) {
      m.heard = now();
      if (beat.goodbye != 0)
        m.left = true;
      else
        m.last = beat;
      return true;
    });
    ending = ending || m.left;
    if (!open && !m.left && died == 0) died = rank;
    if (!open) m.left = true;
  }
  if (died != 0 && givenUp) return true;
  if (died == 0 || ending) return false;
  return report(static_cast<int>(died), LostRank::Kind::died, members[died].last);
}

bool WatchdogHub::State::checkSilence(double at) {
  for (std::size_t rank = 1; rank < members.size(); ++rank) {
    const Member& m = members[rank];
    if (m.socket >= 0 && !m.left && at - m.heard > limits.silenceSeconds) {
      return report(static_cast<int>(rank), LostRank::Kind::frozen, m.last);
    }
  }
  return false;
}

bool WatchdogHub::State::checkStall(double at) {
  std::vector<std::pair<int, Beat>> beats{{0, watchdog::beatOf(*own)}};
  for (std::size_t rank = 1; rank < members.size(); ++rank) {
    if (members[rank].left) return false;  // the run is ending
    if (members[rank].socket >= 0) beats.emplace_back(static_cast<int>(rank), members[rank].last);
  }
  std::int64_t finished = 0, longest = 0, step = 0;
  for (const auto& [rank, beat] : beats) {
    finished += beat.finished, longest = std::max(longest, beat.longestNanoseconds),
                               step = std::max(step, beat.step);
    // Disks and saving have no usual length.
    if (std::strncmp(beat.operation, "checkpoint", 10) == 0) progressAt = at;
  }
  if (finished != progress) progress = finished, progressAt = at;
  const double allowed =
      step < 2 ? limits.firstStepSeconds
               : std::max(limits.stallSeconds, limits.stallFactor * static_cast<double>(longest) * 1e-9);
  if (at - progressAt <= allowed) return false;
  const auto rankOf = [](const std::pair<int, Beat>& each) {
    const bool waits = each.second.lane > static_cast<int>(ActivityLane::compute);
    return std::tuple(waits, each.second.step, each.second.finished, each.first);
  };
  const auto& worst = *std::min_element(beats.begin(), beats.end(),
                                        [&](const auto& a, const auto& b) { return rankOf(a) < rankOf(b); });
  return report(worst.first, LostRank::Kind::stuck, worst.second);
}

void WatchdogHub::State::answer(bool goodbye) {
  Beat beat = watchdog::beatOf(*own);
  beat.goodbye = goodbye ? 1 : 0;
  for (const Member& m : members) {
    if (m.socket >= 0 && !m.left) watchdog::sendAll(m.socket, &beat, sizeof beat);
  }
  for (const Stranger& s : strangers) {
    if (goodbye) watchdog::sendAll(s.socket, &beat, sizeof beat);
  }
}

void WatchdogHub::State::run() {
  double answered = 0, waked = now();
  bool givenUp = false;
  std::vector<pollfd> watched;
  for (;;) {
    watched.clear();
    watched.push_back({bell.descriptor(), POLLIN, 0});
    watched.push_back({listener, POLLIN, 0});
    for (const Member& m : members) {
      if (m.socket >= 0 && !m.left) watched.push_back({m.socket, POLLIN, 0});
    }
    for (const Stranger& s : strangers) watched.push_back({s.socket, POLLIN, 0});
    poll(watched.data(), watched.size(), static_cast<int>(limits.beatSeconds * 1000));
    if (watched[0].revents != 0) {
      accept();  // who connected and was not welcomed yet must not take the end for a death
      return answer(true);
    }
    const double at = now();
    // After a sleep of this process itself (stopped, suspended) everybody seems silent: hear them first.
    const bool slept = at - waked > limits.silenceSeconds / 2;
    const double before = waked;
    waked = at;
    accept();
    welcome();
    // Nobody waits that long for an answer: who goes from now on has given this rank up, and said so.
    givenUp = givenUp || at - before > limits.silenceSeconds - 2 * limits.beatSeconds;
    if (hear(givenUp)) return;
    if (slept) {
      for (Member& m : members) m.heard = at;
      progressAt = at;
    }
    if (checkSilence(at) || checkStall(at)) return;
    if (at - answered >= limits.beatSeconds) answer(false), answered = at;
  }
}

WatchdogHub::WatchdogHub(std::vector<RankIdentity> ranks, const WatchdogLimits& limits, const Activity& own,
                         bool sameHost, std::function<void(const LostRank&)> lost)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.members.resize(ranks.size());
  s.ranks = std::move(ranks), s.limits = limits, s.own = &own, s.lost = std::move(lost);
  s.token = watchdog::randomToken();
  std::uint16_t port = 0;
  s.listener = watchdog::listenOn(sameHost, &port);
  if (s.listener < 0) throw Failure(StatusCode::communicationError, "the watchdog cannot open a TCP port");
  s.endpoint = s.token + " " + std::to_string(port);
  for (const std::string& address : watchdog::addressesOfHost(sameHost)) s.endpoint += " " + address;
  s.progressAt = now();
  s.thread = std::thread([&s] { s.run(); });
}

WatchdogHub::~WatchdogHub() {
  state_->bell.ring();
  state_->thread.join();
}

const WatchdogEndpoint& WatchdogHub::endpoint() const { return state_->endpoint; }

// ---- every other rank ----------------------------------------------------------------------------------------------

struct WatchdogMember::State {
  RankIdentity first;
  WatchdogLimits limits;
  const Activity* own;
  std::function<void(const LostRank&)> lost;
  int socket = -1;
  Bell bell;
  std::thread thread;

  ~State() {
    if (socket >= 0) close(socket);
  }
  Beat last{};
  Inbox<Beat> inbox;

  void report(LostRank::Kind kind) const {
    lost({0, kind, sentence(0, first, kind, watchdog::describe(last))});
  }
  void run();
};

void WatchdogMember::State::run() {
  double heard = now(), waked = heard;
  last.lane = -1;
  for (;;) {
    Beat beat = watchdog::beatOf(*own);
    watchdog::sendAll(socket, &beat, sizeof beat);
    pollfd watched[2] = {{bell.descriptor(), POLLIN, 0}, {socket, POLLIN, 0}};
    const double until = now() + limits.beatSeconds;
    for (double left = limits.beatSeconds; left > 0; left = until - now()) {
      poll(watched, 2, static_cast<int>(left * 1000) + 1);
      if (watched[0].revents != 0) {
        beat.goodbye = 1;
        watchdog::sendAll(socket, &beat, sizeof beat);
        return;
      }
      if (watched[1].revents == 0) continue;
      bool goodbye = false;
      const bool open = inbox.receive(socket, [&](const Beat& answer) {
        heard = now(), goodbye = answer.goodbye != 0, last = answer;
        return true;
      });
      if (goodbye) return;
      if (!open) return report(LostRank::Kind::died);
    }
    const double at = now();
    if (at - waked > limits.silenceSeconds / 2) heard = at;  // it was this process that slept
    waked = at;
    if (at - heard > limits.silenceSeconds) return report(LostRank::Kind::frozen);
  }
}

WatchdogMember::WatchdogMember(int rank, const WatchdogEndpoint& endpoint, const RankIdentity& first,
                               const WatchdogLimits& limits, const Activity& own,
                               std::function<void(const LostRank&)> lost)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.first = first, s.limits = limits, s.own = &own, s.lost = std::move(lost);
  std::istringstream words(endpoint);
  std::string token, address;
  std::uint16_t port = 0;
  words >> token >> port;
  while (s.socket < 0 && words >> address) s.socket = watchdog::connectTo(address, port, 2);
  Hello hello{};
  hello.rank = rank;
  std::memcpy(hello.token, token.data(), std::min<std::size_t>(token.size(), watchdog::kTokenBytes));
  const Beat begun = watchdog::beatOf(own);
  if (s.socket < 0 || !watchdog::sendAll(s.socket, &hello, sizeof hello) ||
      !watchdog::sendAll(s.socket, &begun, sizeof begun)) {
    throw Failure(StatusCode::communicationError,
                  "rank " + std::to_string(rank) + " cannot reach the watchdog of rank 0 on " + first.host +
                      "; let the hosts reach one another by TCP");
  }
  s.thread = std::thread([&s] { s.run(); });
}

WatchdogMember::~WatchdogMember() {
  state_->bell.ring();
  state_->thread.join();
}

}  // namespace internevo::trainer
