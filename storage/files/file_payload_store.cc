#include "storage/files/file_payload_store.h"

#include <set>

#include "base/status_macros.h"

namespace sheaf {

FilePayloadStore::FilePayloadStore(FileSystem& files, const std::string& directory)
    : watch_(files),
      uploads_(watch_, directory + "/uploads"),
      blobs_(watch_, directory + "/blobs"),
      spools_(watch_, directory + "/spools"),
      checkpoints_(watch_, directory + "/checkpoints") {}

absl::StatusOr<std::unique_ptr<FilePayloadStore>> FilePayloadStore::Open(FileSystem& files,
                                                                         const std::string& directory) {
  std::unique_ptr<FilePayloadStore> store(new FilePayloadStore(files, directory));
  RETURN_IF_ERROR(store->uploads_.Open());
  RETURN_IF_ERROR(store->blobs_.Open());
  RETURN_IF_ERROR(store->spools_.Open());
  RETURN_IF_ERROR(store->checkpoints_.Open());
  RETURN_IF_ERROR(files.SyncDirectory(directory));
  return store;
}

absl::StatusOr<PayloadStore::Upload> FilePayloadStore::StartUpload(const UploadId& id, int64_t size_bytes,
                                                                   const std::string& digest) {
  return uploads_.Start(id, size_bytes, digest, UploadMedium::kDisk);
}
absl::StatusOr<PayloadStore::Upload> FilePayloadStore::StartMemoryUpload(const UploadId& id, int64_t size_bytes,
                                                                         const std::string& digest) {
  return uploads_.Start(id, size_bytes, digest, UploadMedium::kMemory);
}
absl::StatusOr<PayloadStore::Upload> FilePayloadStore::GetUpload(const UploadId& id) { return uploads_.Get(id); }
absl::StatusOr<int64_t> FilePayloadStore::WriteChunk(const UploadId& id, int64_t offset, std::string_view data,
                                                     const ChunkTaken& taken) {
  return uploads_.WriteChunk(id, offset, data, taken);
}
absl::Status FilePayloadStore::FinishUpload(const UploadId& id) { return uploads_.Finish(id); }
absl::StatusOr<std::shared_ptr<const BlobView>> FilePayloadStore::OpenUpload(const UploadId& id) {
  return uploads_.OpenView(id);
}
absl::Status FilePayloadStore::DeleteUpload(const UploadId& id) { return uploads_.Delete(id); }
int64_t FilePayloadStore::DeleteStaleUploads(absl::Time now, absl::Duration keep) {
  return uploads_.DeleteStale(now, keep);
}

absl::Status FilePayloadStore::MoveUploadToBlob(const UploadId& id) {
  return uploads_.MoveAway(
      id, [&](const std::string& path, const Upload& upload) { return blobs_.Adopt(path, upload.digest); });
}

absl::StatusOr<SpoolRef> FilePayloadStore::AddUploadToSpool(const UploadId& id, const RoundId& round) {
  SpoolRef ref;
  RETURN_IF_ERROR(uploads_.Share(id, [&](const std::string& path, const Upload& upload) -> absl::Status {
    ASSIGN_OR_RETURN(ref, spools_.Link(round, path, upload.digest, upload.size_bytes));
    return absl::OkStatus();
  }));
  return ref;
}

absl::StatusOr<std::string> FilePayloadStore::WriteBlob(
    const std::function<absl::Status(const ByteSink& take)>& write) {
  return blobs_.Write(write);
}
absl::StatusOr<int64_t> FilePayloadStore::GetBlobSize(const std::string& digest) { return blobs_.GetSize(digest); }
absl::StatusOr<std::shared_ptr<const BlobView>> FilePayloadStore::OpenBlob(const std::string& digest) {
  return blobs_.OpenBlob(digest);
}
absl::StatusOr<PayloadStore::BlobRemains> FilePayloadStore::DeleteBlob(const std::string& digest) {
  return blobs_.Delete(digest);
}
absl::StatusOr<std::vector<PayloadStore::BlobInfo>> FilePayloadStore::ListBlobs() { return blobs_.List(); }

absl::StatusOr<SpoolRef> FilePayloadStore::AppendToSpool(const RoundId& round, std::string_view bytes) {
  return spools_.Append(round, bytes);
}
absl::Status FilePayloadStore::SyncSpools() {
  RETURN_IF_ERROR(spools_.Sync());
  RETURN_IF_ERROR(watch_.status());
  return watch_.DeleteHeld();
}
absl::StatusOr<std::string> FilePayloadStore::ReadFromSpool(const RoundId& round, const SpoolRef& ref) {
  return spools_.Read(round, ref);
}
absl::StatusOr<int64_t> FilePayloadStore::RollSpool(const RoundId& round) { return spools_.Roll(round); }
absl::Status FilePayloadStore::DeleteSpoolSegments(const RoundId& round, int64_t through) {
  return spools_.DeleteSegments(round, through);
}

absl::Status FilePayloadStore::WriteCheckpoint(const RoundId& round, const std::string& name,
                                               const std::function<absl::Status(const ByteSink& take)>& write) {
  return checkpoints_.Write(round, name, write);
}
absl::StatusOr<std::string> FilePayloadStore::ReadCheckpoint(const RoundId& round, const std::string& name) {
  return checkpoints_.Read(round, name);
}
absl::Status FilePayloadStore::DeleteCheckpointsExcept(const RoundId& round, const std::string& name) {
  return checkpoints_.DeleteExcept(round, name);
}

absl::Status FilePayloadStore::DeleteRound(const RoundId& round) {
  // What cannot be deleted of the one keeps nothing of the other.
  absl::Status deleted = spools_.DeleteRound(round);
  deleted.Update(checkpoints_.DeleteRound(round));
  return deleted;
}

absl::StatusOr<std::vector<RoundId>> FilePayloadStore::ListRounds() {
  ASSIGN_OR_RETURN(std::vector<RoundId> with_spool, spools_.ListRounds());
  ASSIGN_OR_RETURN(std::vector<RoundId> with_checkpoint, checkpoints_.ListRounds());
  std::set<RoundId> rounds(with_spool.begin(), with_spool.end());
  rounds.insert(with_checkpoint.begin(), with_checkpoint.end());
  return std::vector<RoundId>(rounds.begin(), rounds.end());
}

}  // namespace sheaf
