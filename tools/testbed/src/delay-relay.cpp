// Carries packets between two tap devices with a fixed delay: the latency of a link, where the kernel has no netem.
// usage: delay-relay TAP_A TAP_B NANOSECONDS. Writes a line once both devices exist.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "delay-relay: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

int openTap(const char* name) {
  const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (device < 0) fail("/dev/net/tun");
  ifreq request{};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  // With the header of virtio the kernel hands over large segments whole, as between two ends of a veth pair.
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (ioctl(device, TUNSETIFF, &request) < 0) fail(name);
  if (ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) < 0) fail("offloads");
  return device;
}

struct Packet {
  Clock::time_point due;
  std::vector<char> bytes;
};

void carry(int from, int to, Clock::duration delay) {
  prctl(PR_SET_TIMERSLACK, 1UL);
  std::deque<Packet> waiting;
  std::vector<std::vector<char>> spare;
  std::vector<char> buffer(80 * 1024);
  for (;;) {
    pollfd ready{from, POLLIN, 0};
    timespec left{};
    if (!waiting.empty()) {
      const auto span = std::chrono::duration_cast<std::chrono::nanoseconds>(std::max(waiting.front().due - Clock::now(), Clock::duration::zero()));
      left.tv_sec = span.count() / 1'000'000'000;
      left.tv_nsec = span.count() % 1'000'000'000;
    }
    if (ppoll(&ready, 1, waiting.empty() ? nullptr : &left, nullptr) < 0 && errno != EINTR) fail("poll");
    const auto now = Clock::now();
    while (!waiting.empty() && waiting.front().due <= now) {
      // A device that is not up yet, or full, loses the packet, as a wire does.
      if (write(to, waiting.front().bytes.data(), waiting.front().bytes.size()) < 0 && errno != EAGAIN && errno != EIO && errno != EINVAL && errno != ENOBUFS) fail("write");
      spare.push_back(std::move(waiting.front().bytes));
      waiting.pop_front();
    }
    if ((ready.revents & POLLIN) == 0) continue;
    for (;;) {
      const ssize_t size = read(from, buffer.data(), buffer.size());
      if (size < 0) {
        if (errno == EAGAIN || errno == EINTR || errno == EIO) break;
        fail("read");
      }
      std::vector<char> bytes;
      if (!spare.empty()) {
        bytes = std::move(spare.back());
        spare.pop_back();
      }
      bytes.assign(buffer.data(), buffer.data() + size);
      waiting.push_back({Clock::now() + delay, std::move(bytes)});
      if (waiting.front().due <= waiting.back().due - delay) break;
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: delay-relay TAP_A TAP_B NANOSECONDS\n");
    return 2;
  }
  const std::chrono::nanoseconds delay(std::strtoll(arguments[3], nullptr, 10));
  const int a = openTap(arguments[1]);
  const int b = openTap(arguments[2]);
  std::puts("ready");
  std::fflush(stdout);
  std::thread back(carry, b, a, delay);
  carry(a, b, delay);
}
