// CrashingPayloadStore: the payload store as the simulated server sees it. Each operation passes the crash point
// before and after; a full disk refuses what writes. It holds the promise of EPHEMERAL rounds: nothing individual is
// spooled.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "storage/payload_store.h"
#include "tests/simulation/crash_point.h"
#include "tests/simulation/store_monitor.h"

namespace sheaf::simulation {

class CrashingPayloadStore final : public PayloadStore {
 public:
  // All outlive this.
  CrashingPayloadStore(PayloadStore& inner, CrashPoint& point, StoreMonitor& monitor)
      : inner_(inner), point_(point), monitor_(monitor) {}

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
  PayloadStore& inner_;
  CrashPoint& point_;
  StoreMonitor& monitor_;
};

}  // namespace sheaf::simulation
