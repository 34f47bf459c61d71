// FilePayloadStore: the PayloadStore on a local directory.
//
//   <directory>/blobs/<digest>
//   <directory>/uploads/<upload>.<size>.<digest>.part|done
//   <directory>/spools/<round>/<segment>.log
//   <directory>/checkpoints/<round>/<name>.ckpt
//
//   PosixFileSystem files;
//   ASSIGN_OR_RETURN(auto store, FilePayloadStore::Open(files, "/var/lib/sheaf"));
//
// Thread-safe. `files` must outlive it. One process per directory: whoever opens it holds the lock (open.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "storage/files/blob_files.h"
#include "storage/files/checkpoint_files.h"
#include "storage/files/file_system.h"
#include "storage/files/flush_watch.h"
#include "storage/files/spool_files.h"
#include "storage/files/upload_files.h"
#include "storage/payload_store.h"

namespace sheaf {

class FilePayloadStore final : public PayloadStore {
 public:
  // Creates what is missing, but for the directory itself.
  static absl::StatusOr<std::unique_ptr<FilePayloadStore>> Open(FileSystem& files, const std::string& directory);

  absl::StatusOr<Upload> StartUpload(const UploadId& id, int64_t size_bytes, const std::string& digest) override;
  absl::StatusOr<Upload> StartMemoryUpload(const UploadId& id, int64_t size_bytes, const std::string& digest) override;
  absl::StatusOr<Upload> GetUpload(const UploadId& id) override;
  UploadUse GetUploadUse(std::string_view id_suffix) override { return uploads_.GetUse(id_suffix); }
  using PayloadStore::WriteChunk;
  absl::StatusOr<int64_t> WriteChunk(const UploadId& id, int64_t offset, std::string_view data,
                                     const ChunkTaken& taken) override;
  absl::Status FinishUpload(const UploadId& id) override;
  absl::Status MoveUploadToBlob(const UploadId& id) override;
  absl::StatusOr<SpoolRef> AddUploadToSpool(const UploadId& id, const RoundId& round) override;
  absl::StatusOr<std::shared_ptr<const BlobView>> OpenUpload(const UploadId& id) override;
  absl::Status DeleteUpload(const UploadId& id) override;
  int64_t DeleteStaleUploads(absl::Time now, absl::Duration keep) override;

  absl::StatusOr<std::string> WriteBlob(const std::function<absl::Status(const ByteSink& take)>& write) override;
  absl::StatusOr<int64_t> GetBlobSize(const std::string& digest) override;
  absl::StatusOr<std::shared_ptr<const BlobView>> OpenBlob(const std::string& digest) override;
  absl::StatusOr<BlobRemains> DeleteBlob(const std::string& digest) override;
  absl::StatusOr<std::vector<BlobInfo>> ListBlobs() override;

  absl::StatusOr<SpoolRef> AppendToSpool(const RoundId& round, std::string_view bytes) override;
  absl::Status SyncSpools() override;
  absl::StatusOr<std::string> ReadFromSpool(const RoundId& round, const SpoolRef& ref) override;
  absl::StatusOr<int64_t> RollSpool(const RoundId& round) override;
  absl::Status DeleteSpoolSegments(const RoundId& round, int64_t through) override;

  absl::Status WriteCheckpoint(const RoundId& round, const std::string& name,
                               const std::function<absl::Status(const ByteSink& take)>& write) override;
  absl::StatusOr<std::string> ReadCheckpoint(const RoundId& round, const std::string& name) override;
  absl::Status DeleteCheckpointsExcept(const RoundId& round, const std::string& name) override;

  absl::Status DeleteRound(const RoundId& round) override;
  absl::StatusOr<std::vector<RoundId>> ListRounds() override;

 private:
  FilePayloadStore(FileSystem& files, const std::string& directory);

  FlushWatch watch_;
  UploadFiles uploads_;
  BlobFiles blobs_;
  SpoolFiles spools_;
  CheckpointFiles checkpoints_;
};

}  // namespace sheaf
