#include "tests/crash/disk_file_system.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sheaf::crash {
namespace {

absl::Status Result(int error, std::string_view what, const std::string& path) {
  return error == 0 ? absl::OkStatus() : FileError(error, what, path);
}

// As PosixFile: a failed flush is INTERNAL whatever its errno.
absl::Status FlushResult(int error, const std::string& path) {
  if (error == 0) return absl::OkStatus();
  return absl::InternalError(fmt::format("cannot flush {}: {}", path, std::strerror(error)));
}

class DiskFile final : public File {
 public:
  DiskFile(SimulatedDisk& disk, SimulatedDisk::NodePtr node, std::string path)
      : disk_(disk), node_(std::move(node)), path_(std::move(path)) {}

  absl::Status WriteAt(int64_t offset, std::string_view bytes) override {
    return Result(disk_.Write(*node_, path_, offset, bytes), "write", path_);
  }
  absl::StatusOr<std::string> ReadAt(int64_t offset, int64_t length) override {
    std::string bytes;
    if (int error = disk_.Read(*node_, path_, offset, length, bytes)) return FileError(error, "read", path_);
    return bytes;
  }
  absl::StatusOr<int64_t> Size() override { return static_cast<int64_t>(node_->bytes.size()); }
  absl::Status Truncate(int64_t size) override { return Result(disk_.Truncate(*node_, path_, size), "shorten", path_); }
  absl::Status Sync() override { return FlushResult(disk_.Sync(*node_, path_), path_); }
  void StartFlush(int64_t /*offset*/, int64_t /*length*/) override {}

 private:
  SimulatedDisk& disk_;
  const SimulatedDisk::NodePtr node_;
  const std::string path_;
};

class DiskView final : public BlobView {
 public:
  explicit DiskView(SimulatedDisk::NodePtr node) : node_(std::move(node)) {}
  int64_t size_bytes() const override { return static_cast<int64_t>(node_->bytes.size()); }
  absl::Status Append(std::span<const ByteRange> ranges, std::string& to) const override {
    for (const ByteRange& range : ranges) {
      to.append(node_->bytes, static_cast<size_t>(range.offset), static_cast<size_t>(range.length));
    }
    return absl::OkStatus();
  }
  absl::Status Visit(const std::function<absl::Status(std::string_view bytes)>& read) const override {
    return read(node_->bytes);
  }

 private:
  const SimulatedDisk::NodePtr node_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<File>> DiskFileSystem::Open(const std::string& path, Mode mode) {
  SimulatedDisk::NodePtr node;
  if (int error = disk_.Open(path, mode == kCreate, node)) return FileError(error, "open", path);
  return std::make_unique<DiskFile>(disk_, std::move(node), path);
}

absl::StatusOr<std::unique_ptr<BlobView>> DiskFileSystem::Map(const std::string& path) {
  SimulatedDisk::NodePtr node;
  if (int error = disk_.Open(path, false, node)) return FileError(error, "map", path);
  return std::make_unique<DiskView>(std::move(node));
}

absl::Status DiskFileSystem::Rename(const std::string& from, const std::string& to) {
  return Result(disk_.Rename(from, to), "rename", from);
}

absl::Status DiskFileSystem::Link(const std::string& path, const std::string& name) {
  return Result(disk_.Link(path, name), "link", path);
}

absl::Status DiskFileSystem::Unlink(const std::string& path) {
  const int error = disk_.Unlink(path);
  return Result(error == ENOENT ? 0 : error, "delete", path);
}

absl::Status DiskFileSystem::CreateDirectory(const std::string& path) {
  const int error = disk_.CreateDirectory(path);
  return Result(error == EEXIST ? 0 : error, "create", path);
}

absl::Status DiskFileSystem::RemoveDirectory(const std::string& path) {
  const int error = disk_.RemoveDirectory(path);
  return Result(error == ENOENT ? 0 : error, "delete", path);
}

absl::Status DiskFileSystem::SyncDirectory(const std::string& path) {
  const int error = disk_.SyncDirectory(path);
  return error == ENOENT ? FileError(error, "open", path) : FlushResult(error, path);
}

absl::StatusOr<std::vector<std::string>> DiskFileSystem::List(const std::string& path) {
  std::vector<std::string> names;
  const int error = disk_.List(path, names);
  if (error != 0 && error != ENOENT) return FileError(error, "list", path);
  return names;
}

absl::StatusOr<FileSystem::Stat> DiskFileSystem::GetStat(const std::string& path) {
  const SimulatedDisk::NodePtr node = disk_.Find(path);
  if (node == nullptr) return FileError(ENOENT, "look at", path);
  return Stat{.size_bytes = static_cast<int64_t>(node->bytes.size()), .is_file = !node->is_directory};
}

}  // namespace sheaf::crash
