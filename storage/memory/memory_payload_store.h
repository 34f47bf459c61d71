// MemoryPayloadStore: the PayloadStore for simulation, with a crash on demand.
//
//   MemoryPayloadStore payloads;
//   payloads.DropUnsynced();     // The power fails: what no flush has covered is gone.
//   payloads.DamageUpload(id);   // The disk fails.
//
// Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "storage/payload_store.h"

namespace sheaf {

class MemoryPayloadStore final : public PayloadStore {
 public:
  // A crash of machine and process: forgets what was appended since the last SyncSpools and every
  // unfinished upload; later appends begin a new segment.
  void DropUnsynced() EXCLUDES(mutex_);

  // The disk has lost bytes of this finished upload: nobody can open it any more.
  void DamageUpload(const UploadId& id) EXCLUDES(mutex_);

  absl::StatusOr<Upload> StartUpload(const UploadId& id, int64_t size_bytes, const std::string& digest) override;
  absl::StatusOr<Upload> StartMemoryUpload(const UploadId& id, int64_t size_bytes, const std::string& digest) override;
  absl::StatusOr<Upload> GetUpload(const UploadId& id) override;
  UploadUse GetUploadUse(std::string_view id_suffix) override;
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
  struct UploadRow {
    Upload upload;
    // Not changed once they are all there: FinishUpload hashes them while others use the store.
    std::shared_ptr<std::string> bytes = std::make_shared<std::string>();
    // Used since DeleteStaleUploads last looked, and when that first saw that it was not.
    bool is_fresh = true;
    absl::Time seen_time = absl::InfinitePast();
    // Gone in a crash, finished or not.
    bool is_in_memory = false;
    bool is_damaged = false;
  };
  // The bytes of an upload that goes.
  static std::string Take(UploadRow& row);
  struct BlobRow {
    std::shared_ptr<const BlobView> view;
  };
  struct Segment {
    std::string bytes;
    size_t num_synced_bytes = 0;
  };
  struct Spool {
    std::map<int64_t, Segment> segments;
    int64_t newest = 0;
    bool is_open = false;
  };
  using CheckpointKey = std::pair<RoundId, std::string>;

  // NOT_FOUND or FAILED_PRECONDITION unless it is a finished upload.
  absl::StatusOr<UploadRow*> FindFinished(const UploadId& id) REQUIRES(mutex_);
  void StoreBlob(const std::string& digest, std::string bytes) REQUIRES(mutex_);
  SpoolRef Append(const RoundId& round, std::string_view bytes) REQUIRES(mutex_);

  Mutex mutex_;
  std::map<UploadId, UploadRow> uploads_ GUARDED_BY(mutex_);
  std::map<std::string, BlobRow> blobs_ GUARDED_BY(mutex_);
  std::map<RoundId, Spool> spools_ GUARDED_BY(mutex_);
  std::map<CheckpointKey, std::string> checkpoints_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
