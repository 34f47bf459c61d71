// TaskDirectory: the files by which a worker and an executable give each other a task and its result.
//
//   ASSIGN_OR_RETURN(const TaskDirectory directory, TaskDirectory::Open(path));
//   RETURN_IF_ERROR(directory.Write("task.json", task));
//   ASSIGN_OR_RETURN(const std::vector<NamedTensor> result, directory.ReadTensors("result.safetensors", bytes_max));
//
// The executable may do with its directory what it likes, also while this reads: nothing is followed out of it, nothing
// that is no file is opened for long, and a file is read and not mapped, so that it cannot shrink beneath a reader.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/wire/tensor.h"
#include "worker/processes/descriptor.h"

namespace sheaf {

class TaskDirectory {
 public:
  static absl::StatusOr<TaskDirectory> Open(std::string path);

  const std::string& path() const { return path_; }

  // A new file. ALREADY_EXISTS if there is something of this name.
  absl::Status Write(std::string_view name, std::string_view bytes) const;
  absl::Status WriteTensors(std::string_view name, const std::vector<NamedTensor>& tensors) const;
  // A link to a file elsewhere.
  absl::Status Link(std::string_view name, const std::string& target) const;

  // Reading takes a plain name. INVALID_ARGUMENT if it is none, or what is there is no file of its own right;
  // NOT_FOUND if nothing is; RESOURCE_EXHAUSTED if it is larger than `bytes_max`.
  absl::StatusOr<std::string> Read(std::string_view name, int64_t bytes_max) const;
  // A safetensors file. Also INVALID_ARGUMENT if it is malformed.
  absl::StatusOr<std::vector<NamedTensor>> ReadTensors(std::string_view name, int64_t bytes_max) const;
  void Remove(std::string_view name) const;

 private:
  struct OpenFile {
    Descriptor descriptor;
    int64_t size = 0;
  };
  TaskDirectory(std::string path, Descriptor descriptor) : path_(std::move(path)), descriptor_(std::move(descriptor)) {}
  absl::StatusOr<OpenFile> OpenToRead(std::string_view name, int64_t bytes_max) const;

  std::string path_;
  Descriptor descriptor_;
};

}  // namespace sheaf
