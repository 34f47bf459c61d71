#include "storage/memory/memory_payload_store.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "storage/files/checkpoint_files.h"

namespace sheaf {
namespace {

absl::Status UploadNotFound(const UploadId& id) {
  return absl::NotFoundError(fmt::format("there is no upload {}", id));
}

absl::Status MustStayInMemory(const UploadId& id) {
  return absl::FailedPreconditionError(fmt::format("upload {} is not to leave the memory", id));
}

}  // namespace

void MemoryPayloadStore::DropUnsynced() {
  MutexLock lock(mutex_);
  std::erase_if(uploads_, [](const auto& row) { return !row.second.upload.is_finished || row.second.is_in_memory; });
  for (auto& [round, spool] : spools_) {
    std::erase_if(spool.segments, [](const auto& row) { return row.second.num_synced_bytes == 0; });
    for (auto& [number, segment] : spool.segments) segment.bytes.resize(segment.num_synced_bytes);
    spool.newest = spool.segments.empty() ? 0 : spool.segments.rbegin()->first;
    spool.is_open = false;
  }
}

void MemoryPayloadStore::DamageUpload(const UploadId& id) {
  MutexLock lock(mutex_);
  uploads_.at(id).is_damaged = true;
}

// --- Uploads -------------------------------------------------------------------------------------

absl::StatusOr<PayloadStore::Upload> MemoryPayloadStore::StartUpload(const UploadId& id, int64_t size_bytes,
                                                                     const std::string& digest) {
  if (!IsSha256Hex(digest)) {
    return absl::InvalidArgumentError(fmt::format("the digest of upload {} is not a SHA-256 in lower-case hex", id));
  }
  if (size_bytes < 0) return absl::InvalidArgumentError(fmt::format("the size of upload {} is negative", id));
  MutexLock lock(mutex_);
  auto [row, is_new] = uploads_.try_emplace(id);
  if (is_new) {
    row->second = {.upload = {.id = id, .size_bytes = size_bytes, .digest = digest}};
  }
  row->second.is_fresh = true;
  const Upload& upload = row->second.upload;
  if (upload.size_bytes != size_bytes || upload.digest != digest) {
    return absl::AlreadyExistsError(
        fmt::format("upload {} was started with another size or digest; choose a new id", id));
  }
  return upload;
}

absl::StatusOr<PayloadStore::Upload> MemoryPayloadStore::StartMemoryUpload(const UploadId& id, int64_t size_bytes,
                                                                           const std::string& digest) {
  ASSIGN_OR_RETURN(Upload upload, StartUpload(id, size_bytes, digest));
  MutexLock lock(mutex_);
  uploads_[id].is_in_memory = true;
  return upload;
}

absl::StatusOr<PayloadStore::Upload> MemoryPayloadStore::GetUpload(const UploadId& id) {
  MutexLock lock(mutex_);
  auto found = uploads_.find(id);
  if (found == uploads_.end()) return UploadNotFound(id);
  return found->second.upload;
}

PayloadStore::UploadUse MemoryPayloadStore::GetUploadUse(std::string_view id_suffix) {
  UploadUse use;
  MutexLock lock(mutex_);
  for (const auto& [id, row] : uploads_) {
    ++use.num_uploads;
    (row.is_in_memory ? use.memory_bytes : use.disk_bytes) += row.upload.size_bytes;
    if (!id.value().ends_with(id_suffix)) continue;
    ++use.num_matching;
    (row.is_in_memory ? use.matching_memory_bytes : use.matching_disk_bytes) += row.upload.size_bytes;
  }
  return use;
}

absl::StatusOr<int64_t> MemoryPayloadStore::WriteChunk(const UploadId& id, int64_t offset, std::string_view data,
                                                       const ChunkTaken& taken) {
  MutexLock lock(mutex_);
  auto found = uploads_.find(id);
  if (found == uploads_.end()) return UploadNotFound(id);
  auto& [upload, bytes, is_fresh, seen_time, is_in_memory, is_damaged] = found->second;
  int64_t length = static_cast<int64_t>(data.size());
  if (offset < 0 || offset > upload.committed_bytes) {
    return absl::OutOfRangeError(fmt::format("the chunk at {} of upload {} leaves a gap", offset, id));
  }
  if (length > upload.size_bytes - offset) {
    return absl::OutOfRangeError(fmt::format("the chunk at {} of upload {} runs past its end", offset, id));
  }
  if (offset + length <= upload.committed_bytes) return upload.committed_bytes;
  if (taken && offset + length < upload.size_bytes) taken(offset + length);
  bytes->append(data.substr(upload.committed_bytes - offset));
  upload.committed_bytes = static_cast<int64_t>(bytes->size());
  is_fresh = true;
  return upload.committed_bytes;
}

absl::Status MemoryPayloadStore::FinishUpload(const UploadId& id) {
  std::shared_ptr<const std::string> bytes;
  {
    MutexLock lock(mutex_);
    auto found = uploads_.find(id);
    if (found == uploads_.end()) return UploadNotFound(id);
    found->second.is_fresh = true;
    const Upload& upload = found->second.upload;
    if (upload.is_finished) return absl::OkStatus();
    if (upload.committed_bytes < upload.size_bytes) {
      return absl::FailedPreconditionError(fmt::format("upload {} has {} of {} bytes: send the rest first", id,
                                                       upload.committed_bytes, upload.size_bytes));
    }
    bytes = found->second.bytes;
  }
  const std::string digest = Sha256Hex(*bytes);
  MutexLock lock(mutex_);
  auto found = uploads_.find(id);
  if (found == uploads_.end() || found->second.bytes != bytes) return UploadNotFound(id);
  if (digest != found->second.upload.digest) {
    uploads_.erase(found);
    return absl::DataLossError(fmt::format("the bytes of upload {} do not have the announced digest", id));
  }
  found->second.upload.is_finished = true;
  return absl::OkStatus();
}

std::string MemoryPayloadStore::Take(UploadRow& row) {
  // A repeated FinishUpload may be reading them.
  return row.bytes.use_count() == 1 ? std::move(*row.bytes) : *row.bytes;
}

absl::StatusOr<MemoryPayloadStore::UploadRow*> MemoryPayloadStore::FindFinished(const UploadId& id) {
  auto found = uploads_.find(id);
  if (found == uploads_.end()) return UploadNotFound(id);
  if (found->second.upload.is_finished) return &found->second;
  return absl::FailedPreconditionError(fmt::format("upload {} is not finished", id));
}

absl::Status MemoryPayloadStore::MoveUploadToBlob(const UploadId& id) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(UploadRow * row, FindFinished(id));
  if (row->is_in_memory) return MustStayInMemory(id);
  StoreBlob(row->upload.digest, Take(*row));
  uploads_.erase(id);
  return absl::OkStatus();
}

absl::StatusOr<SpoolRef> MemoryPayloadStore::AddUploadToSpool(const UploadId& id, const RoundId& round) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(UploadRow * row, FindFinished(id));
  if (row->is_in_memory) return MustStayInMemory(id);
  Spool& spool = spools_[round];
  spool.is_open = false;
  SpoolRef ref = Append(round, *row->bytes);
  spool.is_open = false;
  return ref;
}

absl::StatusOr<std::shared_ptr<const BlobView>> MemoryPayloadStore::OpenUpload(const UploadId& id) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(UploadRow * row, FindFinished(id));
  if (row->is_damaged) return absl::DataLossError(fmt::format("upload {} has lost bytes", id));
  return std::make_shared<MemoryBlobView>(*row->bytes);
}

absl::Status MemoryPayloadStore::DeleteUpload(const UploadId& id) {
  MutexLock lock(mutex_);
  uploads_.erase(id);
  return absl::OkStatus();
}

int64_t MemoryPayloadStore::DeleteStaleUploads(absl::Time now, absl::Duration keep) {
  MutexLock lock(mutex_);
  for (auto& [id, row] : uploads_) {
    if (std::exchange(row.is_fresh, false)) row.seen_time = now;
  }
  return static_cast<int64_t>(
      std::erase_if(uploads_, [&](const auto& row) { return now - row.second.seen_time >= keep; }));
}

// --- Blobs ---------------------------------------------------------------------------------------

void MemoryPayloadStore::StoreBlob(const std::string& digest, std::string bytes) {
  BlobRow& row = blobs_[digest];
  if (!row.view) row.view = std::make_shared<MemoryBlobView>(std::move(bytes));
}

absl::StatusOr<std::string> MemoryPayloadStore::WriteBlob(
    const std::function<absl::Status(const ByteSink& take)>& write) {
  std::string bytes;
  RETURN_IF_ERROR(write([&bytes](std::string_view piece) {
    bytes += piece;
    return absl::OkStatus();
  }));
  std::string digest = Sha256Hex(bytes);
  MutexLock lock(mutex_);
  StoreBlob(digest, std::move(bytes));
  return digest;
}

absl::StatusOr<int64_t> MemoryPayloadStore::GetBlobSize(const std::string& digest) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const BlobView> blob, OpenBlob(digest));
  return blob->size_bytes();
}

absl::StatusOr<std::shared_ptr<const BlobView>> MemoryPayloadStore::OpenBlob(const std::string& digest) {
  MutexLock lock(mutex_);
  auto found = blobs_.find(digest);
  if (found == blobs_.end()) return absl::NotFoundError(fmt::format("there is no blob {}", digest));
  return found->second.view;
}

absl::StatusOr<PayloadStore::BlobRemains> MemoryPayloadStore::DeleteBlob(const std::string& digest) {
  MutexLock lock(mutex_);
  const auto blob = blobs_.extract(digest);
  return blob.empty() ? BlobRemains() : std::move(blob.mapped().view);
}

absl::StatusOr<std::vector<PayloadStore::BlobInfo>> MemoryPayloadStore::ListBlobs() {
  MutexLock lock(mutex_);
  std::vector<BlobInfo> blobs;
  for (const auto& [digest, row] : blobs_) {
    blobs.push_back({.digest = digest, .size_bytes = row.view->size_bytes()});
  }
  return blobs;
}

// --- Spools --------------------------------------------------------------------------------------

SpoolRef MemoryPayloadStore::Append(const RoundId& round, std::string_view bytes) {
  Spool& spool = spools_[round];
  if (!spool.is_open) {
    ++spool.newest;
    spool.is_open = true;
  }
  Segment& segment = spool.segments[spool.newest];
  SpoolRef ref{.segment = spool.newest,
               .offset = static_cast<int64_t>(segment.bytes.size()),
               .length = static_cast<int64_t>(bytes.size()),
               .crc = Crc32(bytes)};
  segment.bytes.append(bytes);
  return ref;
}

absl::StatusOr<SpoolRef> MemoryPayloadStore::AppendToSpool(const RoundId& round, std::string_view bytes) {
  MutexLock lock(mutex_);
  return Append(round, bytes);
}

absl::Status MemoryPayloadStore::SyncSpools() {
  MutexLock lock(mutex_);
  for (auto& [round, spool] : spools_) {
    for (auto& [number, segment] : spool.segments) segment.num_synced_bytes = segment.bytes.size();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> MemoryPayloadStore::ReadFromSpool(const RoundId& round, const SpoolRef& ref) {
  MutexLock lock(mutex_);
  auto spool = spools_.find(round);
  if (spool == spools_.end() || !spool->second.segments.contains(ref.segment)) {
    return absl::NotFoundError(fmt::format("there is no segment {} in the spool of round {}", ref.segment, round));
  }
  const std::string& bytes = spool->second.segments.at(ref.segment).bytes;
  int64_t size = static_cast<int64_t>(bytes.size());
  bool is_inside = ref.offset >= 0 && ref.offset <= size && ref.length >= 0 && ref.length <= size - ref.offset;
  if (!is_inside || Crc32(std::string_view(bytes).substr(ref.offset, ref.length)) != ref.crc) {
    return absl::DataLossError(fmt::format("the {} bytes at {} of segment {} of round {} do not match their checksum",
                                           ref.length, ref.offset, ref.segment, round));
  }
  return bytes.substr(ref.offset, ref.length);
}

absl::StatusOr<int64_t> MemoryPayloadStore::RollSpool(const RoundId& round) {
  MutexLock lock(mutex_);
  auto spool = spools_.find(round);
  if (spool == spools_.end()) return 0;
  spool->second.is_open = false;
  return spool->second.newest;
}

absl::Status MemoryPayloadStore::DeleteSpoolSegments(const RoundId& round, int64_t through) {
  MutexLock lock(mutex_);
  auto spool = spools_.find(round);
  if (spool == spools_.end()) return absl::OkStatus();
  if (spool->second.newest <= through) spool->second.is_open = false;
  std::erase_if(spool->second.segments, [&](const auto& row) { return row.first <= through; });
  return absl::OkStatus();
}

// --- Checkpoints ---------------------------------------------------------------------------------

absl::Status MemoryPayloadStore::WriteCheckpoint(const RoundId& round, const std::string& name,
                                                 const std::function<absl::Status(const ByteSink& take)>& write) {
  RETURN_IF_ERROR(CheckCheckpointName(name));
  std::string bytes;
  RETURN_IF_ERROR(write([&bytes](std::string_view piece) {
    bytes += piece;
    return absl::OkStatus();
  }));
  MutexLock lock(mutex_);
  checkpoints_[{round, name}] = std::move(bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::string> MemoryPayloadStore::ReadCheckpoint(const RoundId& round, const std::string& name) {
  RETURN_IF_ERROR(CheckCheckpointName(name));
  MutexLock lock(mutex_);
  auto found = checkpoints_.find({round, name});
  if (found != checkpoints_.end()) return found->second;
  return absl::NotFoundError(fmt::format("round {} has no checkpoint {}", round, name));
}

absl::Status MemoryPayloadStore::DeleteCheckpointsExcept(const RoundId& round, const std::string& name) {
  MutexLock lock(mutex_);
  std::erase_if(checkpoints_, [&](const auto& row) { return row.first.first == round && row.first.second != name; });
  return absl::OkStatus();
}

absl::Status MemoryPayloadStore::DeleteRound(const RoundId& round) {
  MutexLock lock(mutex_);
  spools_.erase(round);
  std::erase_if(checkpoints_, [&](const auto& row) { return row.first.first == round; });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RoundId>> MemoryPayloadStore::ListRounds() {
  MutexLock lock(mutex_);
  std::set<RoundId> rounds;
  for (const auto& [round, spool] : spools_) {
    if (!spool.segments.empty()) rounds.insert(round);
  }
  for (const auto& [key, bytes] : checkpoints_) rounds.insert(key.first);
  return std::vector<RoundId>(rounds.begin(), rounds.end());
}

}  // namespace sheaf
