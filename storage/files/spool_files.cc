#include "storage/files/spool_files.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "base/checksum.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr std::string_view kLogSuffix = "log";
// No spool gets so far: a name that says so is nobody's.
constexpr int64_t kSegmentsMax = int64_t{1} << 60;

uint32_t CrcOfDigest(const std::string& digest) {
  uint32_t crc = 0;
  std::from_chars(digest.data(), digest.data() + 8, crc, 16);
  return crc;
}

// Of "<number>.log" or "<number>.<digest>"; 0 of anything else that somebody put there.
int64_t SegmentNumberOf(const std::string& name) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const size_t dot = static_cast<size_t>(end - name.data());
  if (error != std::errc() || dot >= name.size() || name[dot] != '.' || number >= kSegmentsMax) return 0;
  const std::string suffix = name.substr(dot + 1);
  return suffix == kLogSuffix || IsSha256Hex(suffix) ? number : 0;
}

}  // namespace

absl::StatusOr<SpoolFiles::Spool*> SpoolFiles::Find(const RoundId& round) {
  if (auto found = spools_.find(round); found != spools_.end()) return &found->second;
  ASSIGN_OR_RETURN(std::vector<std::string> names, files_.List(DirectoryOf(round)));
  Spool spool;
  for (const std::string& name : names) {
    const int64_t number = SegmentNumberOf(name);
    if (number <= 0) continue;
    spool.segments[number] = name;
    spool.newest = std::max(spool.newest, number);
  }
  return &(spools_[round] = std::move(spool));
}

absl::Status SpoolFiles::PrepareDirectory(const RoundId& round, Spool& spool) {
  unsynced_directories_.insert(DirectoryOf(round));
  if (spool.has_directory) return absl::OkStatus();
  RETURN_IF_ERROR(files_.CreateDirectory(DirectoryOf(round)));
  unsynced_directories_.insert(directory_);
  spool.has_directory = true;
  return absl::OkStatus();
}

absl::Status SpoolFiles::BeginSegment(const RoundId& round, Spool& spool) {
  RETURN_IF_ERROR(PrepareDirectory(round, spool));
  // Behind all that are there, also of earlier processes: those may end in half a record, and are never appended to.
  int64_t number = spool.newest + 1;
  std::string name = fmt::format("{}.{}", number, kLogSuffix);
  ASSIGN_OR_RETURN(spool.file, files_.Open(DirectoryOf(round) + "/" + name, FileSystem::kCreate));
  spool.newest = number;
  spool.segments[number] = name;
  spool.size_bytes = 0;
  return absl::OkStatus();
}

absl::StatusOr<SpoolRef> SpoolFiles::Append(const RoundId& round, std::string_view bytes) {
  uint32_t crc = Crc32(bytes);
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Spool * spool, Find(round));
  if (!spool->file) RETURN_IF_ERROR(BeginSegment(round, *spool));
  if (absl::Status status = spool->file->WriteAt(spool->size_bytes, bytes); !status.ok()) {
    // The next append overwrites what got written.
    spool->file->Truncate(spool->size_bytes).IgnoreError();
    return status;
  }
  unsynced_files_.insert(spool->file);
  SpoolRef ref{
      .segment = spool->newest, .offset = spool->size_bytes, .length = static_cast<int64_t>(bytes.size()), .crc = crc};
  spool->size_bytes += ref.length;
  return ref;
}

absl::StatusOr<SpoolRef> SpoolFiles::Link(const RoundId& round, const std::string& path, const std::string& digest,
                                          int64_t size_bytes) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Spool * spool, Find(round));
  RETURN_IF_ERROR(PrepareDirectory(round, *spool));
  int64_t number = spool->newest + 1;
  std::string name = fmt::format("{}.{}", number, digest);
  // The upload keeps its own name until the commit. A crash before that leaves the segment, which no contribution
  // refers to, and the upload, which can be handed in again.
  RETURN_IF_ERROR(files_.Link(path, DirectoryOf(round) + "/" + name));
  // Segments grow with the sequence of contributions: what is appended next goes behind this one.
  spool->file.reset();
  spool->newest = number;
  spool->segments[number] = name;
  return SpoolRef{.segment = number, .offset = 0, .length = size_bytes, .crc = CrcOfDigest(digest)};
}

absl::Status SpoolFiles::Sync() {
  std::set<std::shared_ptr<File>> unsynced_files;
  std::set<std::string> unsynced_directories;
  {
    MutexLock lock(mutex_);
    unsynced_files = std::exchange(unsynced_files_, {});
    unsynced_directories = std::exchange(unsynced_directories_, {});
  }
  // Contents before names: a name without its bytes would be a record that fails its checksum. What failed is not tried
  // again, as a second flush may say OK of pages that the first one dropped: FlushWatch keeps the failure for ever.
  for (const auto& file : unsynced_files) RETURN_IF_ERROR(file->Sync());
  for (const std::string& directory : unsynced_directories) {
    absl::Status status = files_.SyncDirectory(directory);
    // A round that was deleted meanwhile needs no flush.
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<SpoolFiles::Segment> SpoolFiles::FindSegment(const RoundId& round, int64_t number) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Spool * spool, Find(round));
  const auto found = spool->segments.find(number);
  if (found == spool->segments.end()) {
    return absl::NotFoundError(fmt::format("there is no segment {} in the spool of round {}", number, round));
  }
  const std::string& name = found->second;
  std::string suffix = name.substr(name.find('.') + 1);
  return Segment{.path = DirectoryOf(round) + "/" + name, .digest = suffix == kLogSuffix ? "" : std::move(suffix)};
}

absl::StatusOr<std::string> SpoolFiles::Read(const RoundId& round, const SpoolRef& ref) {
  ASSIGN_OR_RETURN(const Segment segment, FindSegment(round, ref.segment));
  if (ref.offset < 0 || ref.length < 0) {
    return absl::DataLossError(fmt::format("a record of round {} lies at {}+{}", round, ref.offset, ref.length));
  }
  const auto& [path, digest] = segment;
  ASSIGN_OR_RETURN(std::unique_ptr<File> file, files_.Open(path, FileSystem::kRead));
  ASSIGN_OR_RETURN(std::string bytes, file->ReadAt(ref.offset, ref.length));
  bool is_whole = static_cast<int64_t>(bytes.size()) == ref.length;
  bool is_right =
      digest.empty() ? Crc32(bytes) == ref.crc : ref.crc == CrcOfDigest(digest) && Sha256Hex(bytes) == digest;
  if (is_whole && is_right) return bytes;
  return absl::DataLossError(
      fmt::format("the {} bytes at {} of {} do not match their checksum", ref.length, ref.offset, path));
}

absl::StatusOr<int64_t> SpoolFiles::Roll(const RoundId& round) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Spool * spool, Find(round));
  spool->file.reset();
  return spool->newest;
}

absl::Status SpoolFiles::DeleteSegments(const RoundId& round, int64_t through) {
  // Only what a durable checkpoint covers is asked for, so that any order will do, and a crash in here leaves segments
  // that the next start deletes.
  std::map<int64_t, std::string> covered;
  {
    MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(Spool * spool, Find(round));
    if (spool->newest <= through) {
      unsynced_files_.erase(spool->file);
      spool->file.reset();
    }
    while (!spool->segments.empty() && spool->segments.begin()->first <= through) {
      covered.insert(spool->segments.extract(spool->segments.begin()));
    }
  }
  if (covered.empty()) return absl::OkStatus();
  // Large files take their time to go, and nobody who appends waits for that. One that cannot be deleted keeps no
  // other, and is tried again with the next.
  absl::Status deleted;
  for (auto it = covered.begin(); it != covered.end();) {
    const absl::Status unlinked = files_.Unlink(DirectoryOf(round) + "/" + it->second);
    deleted.Update(unlinked);
    it = unlinked.ok() ? covered.erase(it) : std::next(it);
  }
  if (!covered.empty()) {
    MutexLock lock(mutex_);
    if (const auto found = spools_.find(round); found != spools_.end()) found->second.segments.merge(covered);
  }
  return deleted;
}

absl::Status SpoolFiles::DeleteRound(const RoundId& round) {
  {
    MutexLock lock(mutex_);
    if (auto found = spools_.find(round); found != spools_.end()) {
      unsynced_files_.erase(found->second.file);
      spools_.erase(found);
    }
    unsynced_directories_.erase(DirectoryOf(round));
  }
  ASSIGN_OR_RETURN(std::vector<std::string> names, files_.List(DirectoryOf(round)));
  // One that cannot be deleted keeps no other: they are contributions.
  absl::Status deleted;
  for (const std::string& name : names) deleted.Update(files_.Unlink(DirectoryOf(round) + "/" + name));
  RETURN_IF_ERROR(deleted);
  return files_.RemoveDirectory(DirectoryOf(round));
}

absl::StatusOr<std::vector<RoundId>> SpoolFiles::ListRounds() {
  ASSIGN_OR_RETURN(std::vector<std::string> names, files_.List(directory_));
  std::vector<RoundId> rounds;
  for (const std::string& name : names) rounds.emplace_back(DecodeFileName(name));
  return rounds;
}

}  // namespace sheaf
