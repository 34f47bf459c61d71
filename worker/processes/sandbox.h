// Sandboxed: a command as bubblewrap runs it (bwrap(1)): without a network, in name spaces of its own, and with a file
// system that it can read only where it has to, and write only in its directory.
//
//   ASSIGN_OR_RETURN(const std::string bwrap, FindExecutable("bwrap", path));
//   spec.arguments = Sandboxed(bwrap, spec.arguments, {.writable = directory, .readable = {"/srv/people"}});
#pragma once

#include <string>
#include <vector>

namespace sheaf {

struct SandboxView {
  // The only directory that it can write to.
  std::string writable;
  // Files and folders that it can read although they lie where nothing can be read: below kHidden.
  std::vector<std::string> readable;
};

// Where people and services keep what is theirs.
inline constexpr const char* kHidden[] = {"/home", "/root", "/srv", "/var", "/run", "/tmp", "/mnt", "/media", "/opt"};

std::vector<std::string> Sandboxed(const std::string& bwrap, const std::vector<std::string>& arguments,
                                   const SandboxView& view);

}  // namespace sheaf
