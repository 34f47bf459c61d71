// CheckpointFiles: per round a directory of "<name>.ckpt" files. Each begins with 24 bytes, the magic "SHEAFCK1", the
// length of the rest (8 bytes, little-endian) and its CRC-32 (4 bytes, then 4 zeros), and appears whole. Thread-safe,
// as no two writers share a name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "storage/files/file_system.h"
#include "storage/payload_store.h"

namespace sheaf {

class CheckpointFiles {
 public:
  CheckpointFiles(FileSystem& files, std::string directory) : files_(files), directory_(std::move(directory)) {}

  absl::Status Open() { return files_.CreateDirectory(directory_); }

  absl::Status Write(const RoundId& round, const std::string& name,
                     const std::function<absl::Status(const ByteSink& take)>& write);
  absl::StatusOr<std::string> Read(const RoundId& round, const std::string& name);
  // The same, in pieces: DATA_LOSS may come behind the last.
  absl::Status ReadInto(const RoundId& round, const std::string& name, const ByteSink& take);
  absl::Status DeleteExcept(const RoundId& round, const std::string& name);
  absl::Status DeleteRound(const RoundId& round);
  absl::StatusOr<std::vector<RoundId>> ListRounds();

 private:
  std::string DirectoryOf(const RoundId& round) const { return directory_ + "/" + EncodeFileName(round.value()); }
  std::string PathOf(const RoundId& round, const std::string& name) const;
  absl::StatusOr<std::unique_ptr<File>> OpenFile(const RoundId& round, const std::string& name);
  static absl::Status ReadChecked(File& file, const std::string& path, const ByteSink& take);

  FileSystem& files_;
  const std::string directory_;
};

// INVALID_ARGUMENT unless `name` is [A-Za-z0-9_-]+.
absl::Status CheckCheckpointName(const std::string& name);

}  // namespace sheaf
