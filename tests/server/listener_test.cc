// The Listener by itself: which connections it takes, with what set, and what it does when files run out.
#include "server/net/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/core/limits/limits.h"

namespace sheaf {
namespace {

// For what must happen at some time: machines that test are busy.
constexpr int kPatienceMillis = 30'000;

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

template <typename T>
T OptionOf(int fd, int level, int name) {
  T value = {};
  socklen_t size = sizeof value;
  REQUIRE(getsockopt(fd, level, name, &value, &size) == 0);
  return value;
}

// What a listener took, in the order of arrival.
class Taken {
 public:
  void Start(Listener& listener) {
    listener.Start([this](int fd) {
      MutexLock lock(mutex_);
      connections_.emplace_back(fd);
      changed_.NotifyOne();
    });
  }
  Fd Next() {
    MutexLock lock(mutex_);
    const absl::Time end = clock_.Now() + absl::Milliseconds(kPatienceMillis);
    while (connections_.empty() && clock_.Now() < end) changed_.WaitFor(mutex_, end - clock_.Now());
    REQUIRE_FALSE(connections_.empty());
    Fd first = std::move(connections_.front());
    connections_.pop_front();
    return first;
  }
  size_t size() {
    MutexLock lock(mutex_);
    return connections_.size();
  }

 private:
  const SystemClock clock_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Fd> connections_ GUARDED_BY(mutex_);
};

int PortOf(const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); }

// A client of 127.0.0.1. Its file is there before it connects, so that it can when no file is left.
class Client {
 public:
  Client() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) { REQUIRE(fd_.get() >= 0); }
  // The kernel answers, whether anybody takes the connection or not.
  bool Connect(const std::string& address) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(PortOf(address)));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  // The other side closed the connection, within `millis`.
  bool IsClosed(int millis = kPatienceMillis) {
    pollfd readable = {.fd = fd_.get(), .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, millis) <= 0) return false;
    char byte = 0;
    return recv(fd_.get(), &byte, 1, 0) <= 0;
  }

 private:
  Fd fd_;
};

// While it lives, this process may have `max` files open.
class FileLimit {
 public:
  explicit FileLimit(rlim_t max) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lower = {.rlim_cur = max, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &lower);
  }
  ~FileLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_ = {};
};

// Opens files until the next one would have the number `end`, or there is none.
std::vector<Fd> FillFilesUpTo(int end) {
  std::vector<Fd> files;
  while (true) {
    Fd file(dup(STDERR_FILENO));
    if (file.get() < 0 || file.get() >= end) return files;
    files.push_back(std::move(file));
  }
}

std::unique_ptr<Listener> OpenOn(const std::string& listen) {
  absl::StatusOr<std::unique_ptr<Listener>> listener = Listener::Open(listen);
  INFO(listener.status().ToString());
  REQUIRE(listener.ok());
  return *std::move(listener);
}

TEST_CASE("Port 0 is one that was free, the same for all of a host's addresses, and the listener says which") {
  const std::unique_ptr<Listener> first = OpenOn("127.0.0.1:0");
  const std::unique_ptr<Listener> second = OpenOn("localhost:0");
  CHECK(first->address().starts_with("127.0.0.1:"));
  CHECK(second->address().starts_with("localhost:"));
  CHECK(PortOf(first->address()) > 0);
  CHECK(PortOf(second->address()) > 0);
  CHECK(first->address() != second->address());
  // Nobody takes connections yet: the kernel keeps who comes.
  Client early;
  REQUIRE(early.Connect(first->address()));
  Taken taken;
  taken.Start(*first);
  taken.Next();
  CHECK(Client().Connect(second->address()));
}

TEST_CASE("A connection is handed over so that no read, no delay and no silence of its peer stops anybody") {
  Taken taken;
  const std::unique_ptr<Listener> listener = OpenOn("127.0.0.1:0");
  taken.Start(*listener);
  Client client;
  REQUIRE(client.Connect(listener->address()));
  const Fd connection = taken.Next();
  CHECK((fcntl(connection.get(), F_GETFL) & O_NONBLOCK) != 0);
  CHECK((fcntl(connection.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(OptionOf<int>(connection.get(), IPPROTO_TCP, TCP_NODELAY) == 1);
  // Else what is sent to a machine that was unplugged is tried again for a quarter of an hour.
  CHECK(OptionOf<unsigned>(connection.get(), IPPROTO_TCP, TCP_USER_TIMEOUT) == 20'000);
}

TEST_CASE("While few files are left a new connection is closed at once, and the next is taken when there are more") {
  const FileLimit limit(256);
  Taken taken;
  const std::unique_ptr<Listener> listener = OpenOn("127.0.0.1:0");
  taken.Start(*listener);
  Client early, refused, late;
  REQUIRE(early.Connect(listener->address()));
  const Fd kept = taken.Next();
  {
    // A quarter of them is not for connections.
    const std::vector<Fd> files = FillFilesUpTo(192);
    REQUIRE(refused.Connect(listener->address()));
    CHECK(refused.IsClosed());
    CHECK(Fd(dup(STDERR_FILENO)).get() >= 0);
  }
  REQUIRE(late.Connect(listener->address()));
  taken.Next();
  CHECK_FALSE(early.IsClosed(0));
}

TEST_CASE("Of many files, those of uploads_max uploads and 256 more are not for connections") {
  constexpr int kFiles = 18'000;
  rlimit files_max = {};
  getrlimit(RLIMIT_NOFILE, &files_max);
  if (files_max.rlim_max < kFiles) {
    WARN("not run: fewer files may be open here");
    return;
  }
  const FileLimit limit(kFiles);
  const int for_connections = kFiles - static_cast<int>(Limits().uploads_max) - 256;
  Taken taken;
  const std::unique_ptr<Listener> listener = OpenOn("127.0.0.1:0");
  taken.Start(*listener);
  Client early, refused;
  {
    const std::vector<Fd> files = FillFilesUpTo(for_connections - 10);
    REQUIRE(early.Connect(listener->address()));
    taken.Next();
  }
  const std::vector<Fd> files = FillFilesUpTo(for_connections);
  REQUIRE(refused.Connect(listener->address()));
  CHECK(refused.IsClosed());
}

TEST_CASE("Without a single file left connections wait, at no cost, and are taken when there are files again") {
  const FileLimit limit(256);
  Taken taken;
  const std::unique_ptr<Listener> listener = OpenOn("127.0.0.1:0");
  taken.Start(*listener);
  std::vector<Client> clients(3);
  rusage before = {}, after = {};
  bool all_connected = true, is_any_closed = false;
  size_t num_taken = 0;
  {
    // Without a check: UndefinedBehaviorSanitizer takes two files for each.
    const std::vector<Fd> files = FillFilesUpTo(256);
    for (Client& client : clients) all_connected = client.Connect(listener->address()) && all_connected;
    getrusage(RUSAGE_SELF, &before);
    poll(nullptr, 0, 500);
    getrusage(RUSAGE_SELF, &after);
    num_taken = taken.size();
    for (Client& client : clients) is_any_closed = client.IsClosed(0) || is_any_closed;
  }
  CHECK(all_connected);
  CHECK(num_taken == 0);
  CHECK_FALSE(is_any_closed);
  const auto micros = [](const rusage& usage) {
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  // It asks again now and then, and does not spin.
  CHECK(micros(after) - micros(before) < 250'000);
  for (size_t i = 0; i < clients.size(); ++i) taken.Next();
}

TEST_CASE("Stopping closes the port at once, whatever waits at it, and another listener may have it") {
  Taken taken;
  std::unique_ptr<Listener> listener = OpenOn("127.0.0.1:0");
  const std::string address = listener->address();
  Client connected;
  REQUIRE(connected.Connect(address));
  const bool is_started = GENERATE(true, false);
  std::optional<Fd> connection;
  if (is_started) {
    taken.Start(*listener);
    connection = taken.Next();
  }
  listener->Stop();
  CHECK_FALSE(Client().Connect(address));
  // Who was taken stays; who was not hears that nobody will.
  CHECK(connected.IsClosed(is_started ? 0 : kPatienceMillis) == !is_started);
  listener->Stop();
  const std::unique_ptr<Listener> next = OpenOn(address);
  CHECK(next->address() == address);
  CHECK(Client().Connect(address));
}

TEST_CASE("A listener that has no file to take connections with can be stopped") {
  const FileLimit limit(256);
  Taken taken;
  const std::unique_ptr<Listener> listener = OpenOn("127.0.0.1:0");
  taken.Start(*listener);
  Client client;
  bool is_connected = false;
  {
    const std::vector<Fd> files = FillFilesUpTo(256);
    is_connected = client.Connect(listener->address());
    listener->Stop();
  }
  REQUIRE(is_connected);
  CHECK(client.IsClosed());
}

}  // namespace
}  // namespace sheaf
