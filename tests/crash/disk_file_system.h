// DiskFileSystem: the payload store's FileSystem on a SimulatedDisk. Not thread-safe, as the disk.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "storage/files/file_system.h"
#include "tests/crash/simulated_disk.h"

namespace sheaf::crash {

class DiskFileSystem final : public FileSystem {
 public:
  explicit DiskFileSystem(SimulatedDisk& disk) : disk_(disk) {}

  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, Mode mode) override;
  absl::StatusOr<std::unique_ptr<BlobView>> Map(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Link(const std::string& path, const std::string& name) override;
  absl::Status Unlink(const std::string& path) override;
  absl::Status CreateDirectory(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;
  absl::StatusOr<Stat> GetStat(const std::string& path) override;

 private:
  SimulatedDisk& disk_;
};

}  // namespace sheaf::crash
