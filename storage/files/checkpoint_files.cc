#include "storage/files/checkpoint_files.h"

#include <fmt/format.h>

#include <limits>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "storage/files/blob_files.h"

namespace sheaf {
namespace {

constexpr std::string_view kMagic = "SHEAFCK1";
constexpr int64_t kHeaderBytes = 24;

std::string HeaderOf(uint64_t length, uint64_t crc) {
  std::string header(kMagic);
  for (int i = 0; i < 8; ++i) header.push_back(static_cast<char>(length >> (8 * i)));
  for (int i = 0; i < 8; ++i) header.push_back(static_cast<char>(crc >> (8 * i)));
  return header;
}

std::string FileNameOf(const std::string& name) { return name + ".ckpt"; }

}  // namespace

absl::Status CheckCheckpointName(const std::string& name) {
  if (!name.empty() && EncodeFileName(name) == name) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("'{}' cannot name a checkpoint: use letters, digits, - and _", name));
}

std::string CheckpointFiles::PathOf(const RoundId& round, const std::string& name) const {
  return DirectoryOf(round) + "/" + FileNameOf(name);
}

absl::Status CheckpointFiles::Write(const RoundId& round, const std::string& name,
                                    const std::function<absl::Status(const ByteSink& take)>& write) {
  RETURN_IF_ERROR(CheckCheckpointName(name));
  // The round's directory, then the whole file under another name, then its name: each durable before the next. A crash
  // leaves no file of this name, or all of it. What else it leaves goes when the round's older checkpoints do.
  RETURN_IF_ERROR(files_.CreateDirectory(DirectoryOf(round)));
  RETURN_IF_ERROR(files_.SyncDirectory(directory_));
  uint64_t length = 0;
  uint32_t crc = 0;
  const auto write_behind_header = [&](const ByteSink& take) -> absl::Status {
    RETURN_IF_ERROR(take(HeaderOf(0, 0)));
    return write([&](std::string_view piece) {
      length += piece.size();
      crc = Crc32(piece, crc);
      return take(piece);
    });
  };
  return WriteFileWhole(
      files_, DirectoryOf(round), name + ".tmp", write_behind_header, [&name] { return FileNameOf(name); },
      [&] { return HeaderOf(length, crc); });
}

absl::StatusOr<std::unique_ptr<File>> CheckpointFiles::OpenFile(const RoundId& round, const std::string& name) {
  RETURN_IF_ERROR(CheckCheckpointName(name));
  auto file = files_.Open(PathOf(round, name), FileSystem::kRead);
  if (!absl::IsNotFound(file.status())) return file;
  return absl::NotFoundError(fmt::format("round {} has no checkpoint {}", round, name));
}

absl::StatusOr<std::string> CheckpointFiles::Read(const RoundId& round, const std::string& name) {
  ASSIGN_OR_RETURN(const std::unique_ptr<File> file, OpenFile(round, name));
  ASSIGN_OR_RETURN(const int64_t size, file->Size());
  std::string bytes;
  bytes.reserve(static_cast<size_t>(size));
  RETURN_IF_ERROR(ReadChecked(*file, PathOf(round, name), [&bytes](std::string_view piece) {
    bytes += piece;
    return absl::OkStatus();
  }));
  return bytes;
}

absl::Status CheckpointFiles::ReadInto(const RoundId& round, const std::string& name, const ByteSink& take) {
  ASSIGN_OR_RETURN(const std::unique_ptr<File> file, OpenFile(round, name));
  return ReadChecked(*file, PathOf(round, name), take);
}

absl::Status CheckpointFiles::ReadChecked(File& file, const std::string& path, const ByteSink& take) {
  ASSIGN_OR_RETURN(const std::string header, file.ReadAt(0, kHeaderBytes));
  uint64_t length = 0;
  uint32_t crc = 0;
  RETURN_IF_ERROR(ReadFilePieces(file, kHeaderBytes, std::numeric_limits<int64_t>::max(), [&](std::string_view piece) {
    length += piece.size();
    crc = Crc32(piece, crc);
    return take(piece);
  }));
  if (header == HeaderOf(length, crc)) return absl::OkStatus();
  return absl::DataLossError(fmt::format("the checkpoint {} does not match its checksum", path));
}

absl::Status CheckpointFiles::DeleteExcept(const RoundId& round, const std::string& name) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, files_.List(DirectoryOf(round)));
  // One that cannot be deleted keeps no other.
  absl::Status deleted;
  for (const std::string& other : names) {
    if (!name.empty() && other == FileNameOf(name)) continue;
    deleted.Update(files_.Unlink(DirectoryOf(round) + "/" + other));
  }
  return deleted;
}

absl::Status CheckpointFiles::DeleteRound(const RoundId& round) {
  RETURN_IF_ERROR(DeleteExcept(round, ""));
  return files_.RemoveDirectory(DirectoryOf(round));
}

absl::StatusOr<std::vector<RoundId>> CheckpointFiles::ListRounds() {
  ASSIGN_OR_RETURN(std::vector<std::string> names, files_.List(directory_));
  std::vector<RoundId> rounds;
  for (const std::string& name : names) rounds.emplace_back(DecodeFileName(name));
  return rounds;
}

}  // namespace sheaf
