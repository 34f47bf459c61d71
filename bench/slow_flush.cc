// Preloaded into a process, makes fsync and fdatasync take SHEAF_FLUSH_MICROSECONDS longer: the disks of build machines
// flush 10 to 100 times faster than those that servers usually have.
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

namespace {

using Flush = int (*)(int);

int FlushSlowly(const char* name, int descriptor) {
  static const long microseconds = [] {
    const char* text = std::getenv("SHEAF_FLUSH_MICROSECONDS");
    return text == nullptr ? 0 : std::atol(text);
  }();
  const timespec delay = {.tv_sec = microseconds / 1'000'000, .tv_nsec = microseconds % 1'000'000 * 1000};
  ppoll(nullptr, 0, &delay, nullptr);
  return reinterpret_cast<Flush>(dlsym(RTLD_NEXT, name))(descriptor);
}

}  // namespace

extern "C" int fsync(int descriptor) { return FlushSlowly("fsync", descriptor); }
extern "C" int fdatasync(int descriptor) { return FlushSlowly("fdatasync", descriptor); }
