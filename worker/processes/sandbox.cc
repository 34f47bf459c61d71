#include "worker/processes/sandbox.h"

#include <filesystem>

namespace sheaf {

std::vector<std::string> Sandboxed(const std::string& bwrap, const std::vector<std::string>& arguments,
                                   const SandboxView& view) {
  std::vector<std::string> words = {bwrap,
                                    "--unshare-all",
                                    "--die-with-parent",
                                    "--new-session",
                                    "--cap-drop",
                                    "ALL",
                                    "--ro-bind",
                                    "/",
                                    "/",
                                    "--dev",
                                    "/dev",
                                    "--proc",
                                    "/proc"};
  const auto add = [&words](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
  // What comes later hides what came before.
  for (const char* const hidden : kHidden) {
    if (std::filesystem::is_directory(hidden) && !std::filesystem::is_symlink(hidden)) add({"--tmpfs", hidden});
  }
  for (const std::string& path : view.readable) add({"--ro-bind", path, path});
  // Before its parent, which may be such a place, can be written to no more. Shared memory and semaphores are files in
  // its directory, so that they count as what it writes.
  add({"--bind", view.writable, view.writable, "--bind", view.writable, "/dev/shm", "--remount-ro", "/dev"});
  // The empty places are not for writing to either.
  for (const char* const hidden : kHidden) {
    if (std::filesystem::is_directory(hidden) && !std::filesystem::is_symlink(hidden)) add({"--remount-ro", hidden});
  }
  words.push_back("--");
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace sheaf
