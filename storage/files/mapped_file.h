// MappedFile: a BlobView of a file that is mapped into memory.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<BlobView> view, MappedFile::Open("blobs/9f86d0..."));
//
// Rows of a tensor lie anywhere in it: copying 64 bytes from a mapping takes some nanoseconds where a system call for
// each would take hundreds. What a mapping costs is that reading beyond the end of a file that somebody has cut off, or
// what the disk cannot give, is no error but a signal (SIGBUS), which ends a process. So whoever reads does it under a
// guard: a handler for the signal puts zeros in place of what is not there, and notes it; the reading goes on, and
// fails when it is done, naming the file, as do all later ones of this view. The first MappedFile of a process installs
// the handler; a signal that no reading has caused goes where it went before.
//
// It keeps the file open: only a file's size says whether the end of its last page are its bytes, or the zeros that
// stand where it was cut off. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/blob_view.h"

namespace sheaf {

class MappedFile final : public BlobView {
 public:
  // The codes of FileSystem.
  static absl::StatusOr<std::unique_ptr<BlobView>> Open(const std::string& path);
  ~MappedFile() override;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  int64_t size_bytes() const override { return size_bytes_; }
  absl::Status Append(std::span<const ByteRange> ranges, std::string& to) const override;
  absl::Status Visit(const std::function<absl::Status(std::string_view bytes)>& read) const override;

 private:
  MappedFile(std::string path, int descriptor, const char* data, int64_t size_bytes)
      : path_(std::move(path)), descriptor_(descriptor), data_(data), size_bytes_(size_bytes) {}
  // Whether all bytes that were read so far were the file's.
  absl::Status CheckRead() const;

  const std::string path_;
  const int descriptor_;
  // Null if the file is empty.
  const char* const data_;
  const int64_t size_bytes_;
  // Zeros stand in place of some bytes.
  mutable std::atomic<bool> is_damaged_ = false;
};

}  // namespace sheaf
