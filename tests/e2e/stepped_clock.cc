// Clocks that a test steps while a program runs: preloaded into it (LD_PRELOAD), adds to the machine's wall time the
// seconds that stand, as eight bytes, in the file named by SHEAF_TEST_CLOCK, and leaves the others alone, as
// settimeofday(2) does. The seconds in the next eight bytes were slept: they are added to the wall time and to the time
// since the machine was booted, and not to the monotonic clock, as suspend does.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

const volatile int64_t* MapOffset() {
  const char* path = std::getenv("SHEAF_TEST_CLOCK");
  const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* mapped = ::mmap(nullptr, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  return mapped == MAP_FAILED ? nullptr : static_cast<const volatile int64_t*>(mapped);
}

const volatile int64_t* Offsets() {
  static const volatile int64_t* const offsets = MapOffset();
  return offsets;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  const volatile int64_t* const offsets = Offsets();
  if (result != 0 || offsets == nullptr) return result;
  const bool is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  if (is_wall) time->tv_sec += offsets[0];
  if (is_wall || clock == CLOCK_BOOTTIME) time->tv_sec += offsets[1];
  return result;
}

int gettimeofday(timeval* __restrict time, void* __restrict /*zone*/) noexcept {
  timespec now = {};
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* seconds) noexcept {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds != nullptr) *seconds = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
