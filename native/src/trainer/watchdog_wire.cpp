#include "trainer/watchdog_wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace internevo::trainer::watchdog {

Beat beatOf(const Activity& activity) {
  Beat beat{};
  beat.lane = -1, beat.unit = -1, beat.microBatch = -1;
  beat.step = activity.step(), beat.finished = activity.finished();
  beat.longestNanoseconds = activity.longestNanoseconds();
  std::int64_t latest = -1;
  // What the computing thread is in; the lanes beside it speak only when that is in nothing.
  for (const ActivityLane lane : {ActivityLane::compute, ActivityLane::exposed, ActivityLane::communication,
                                  ActivityLane::activations}) {
    const PresentActivity present = activity.present(lane);
    if (present.name == nullptr || present.startNanoseconds <= latest) continue;
    if (isBeside(lane) && latest >= 0) continue;
    latest = present.startNanoseconds;
    beat.lane = static_cast<std::int32_t>(lane);
    beat.unit = present.unit, beat.microBatch = present.microBatch;
    std::snprintf(beat.operation, sizeof beat.operation, "%s", present.name);
  }
  beat.sinceNanoseconds = latest < 0 ? 0 : steadyNanoseconds() - latest;
  return beat;
}

std::string describe(const Beat& beat) {
  std::string text = "step " + std::to_string(beat.step);
  if (beat.lane < 0) return text + ", between operations";
  text += ", in " + std::string(beat.operation, strnlen(beat.operation, sizeof beat.operation));
  if (beat.unit >= 0) text += " of unit " + std::to_string(beat.unit);
  if (beat.microBatch >= 0) text += ", micro-batch " + std::to_string(beat.microBatch);
  char seconds[40];
  std::snprintf(seconds, sizeof seconds, ", for %.1f s", static_cast<double>(beat.sinceNanoseconds) * 1e-9);
  return text + seconds;
}

int listenOn(bool loopbackOnly, std::uint16_t* port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return -1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(loopbackOnly ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t length = sizeof address;
  if (bind(socket, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(socket, 1024) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    close(socket);
    return -1;
  }
  *port = ntohs(address.sin_port);
  return socket;
}

std::vector<std::string> addressesOfHost(bool loopbackOnly) {
  if (loopbackOnly) return {"127.0.0.1"};
  std::vector<std::string> addresses;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return addresses;
  for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_LOOPBACK) != 0 || (each->ifa_flags & IFF_UP) == 0) continue;
    char text[INET_ADDRSTRLEN];
    const auto* address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof text) != nullptr) addresses.emplace_back(text);
  }
  freeifaddrs(interfaces);
  return addresses;
}

int connectTo(const std::string& address, std::uint16_t port, double seconds) {
  sockaddr_in to{};
  to.sin_family = AF_INET, to.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) return -1;
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return -1;
  const int one = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  ::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to);
  pollfd ready{socket, POLLOUT, 0};
  int error = 0;
  socklen_t length = sizeof error;
  if (poll(&ready, 1, static_cast<int>(seconds * 1000)) != 1 ||
      getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
    close(socket);
    return -1;
  }
  return socket;
}

void setNonBlocking(int socket) { fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK); }

bool sendAll(int socket, const void* data, std::size_t bytes) {
  return send(socket, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

std::string randomToken() {
  std::string token(kTokenBytes, '\0');
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
    token.assign(kTokenBytes, 'x');
  static constexpr char kDigits[] = "0123456789abcdef";
  for (char& c : token) c = kDigits[static_cast<unsigned char>(c) % 16];
  return token;
}

}  // namespace internevo::trainer::watchdog
