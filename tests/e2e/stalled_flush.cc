// A disk that hangs while a test wants it to: preloaded into a program (LD_PRELOAD), fsync and fdatasync wait as long
// as there is a file of the name in SHEAF_TEST_STALL.
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>

namespace {

int FlushLate(const char* name, int descriptor) {
  static const char* const path = std::getenv("SHEAF_TEST_STALL");
  while (path != nullptr && ::access(path, F_OK) == 0) ::poll(nullptr, 0, 20);
  return reinterpret_cast<int (*)(int)>(::dlsym(RTLD_NEXT, name))(descriptor);
}

}  // namespace

extern "C" int fsync(int descriptor) { return FlushLate("fsync", descriptor); }
extern "C" int fdatasync(int descriptor) { return FlushLate("fdatasync", descriptor); }
