#include "tests/simulation/crashing_payload_store.h"

namespace sheaf::simulation {
namespace {

template <typename Operation>
auto Between(CrashPoint& point, StoreOperation name, Operation operation) {
  point.PassBefore(name);
  auto result = operation();
  point.PassAfter(name);
  return result;
}

template <typename Operation>
auto Writing(CrashPoint& point, StoreOperation name, Operation operation) {
  return Between(point, name, [&]() -> decltype(operation()) {
    if (point.payload_disk_is_full) return absl::ResourceExhaustedError("the disk is full");
    return operation();
  });
}

}  // namespace

// --- What writes ---------------------------------------------------------------------------------

absl::StatusOr<PayloadStore::Upload> CrashingPayloadStore::StartUpload(const UploadId& id, int64_t size_bytes,
                                                                       const std::string& digest) {
  return Writing(point_, StoreOperation::kStartUpload, [&] { return inner_.StartUpload(id, size_bytes, digest); });
}
absl::StatusOr<PayloadStore::Upload> CrashingPayloadStore::StartMemoryUpload(const UploadId& id, int64_t size_bytes,
                                                                             const std::string& digest) {
  return Writing(point_, StoreOperation::kStartMemoryUpload,
                 [&] { return inner_.StartMemoryUpload(id, size_bytes, digest); });
}
absl::StatusOr<int64_t> CrashingPayloadStore::WriteChunk(const UploadId& id, int64_t offset, std::string_view data,
                                                         const ChunkTaken& taken) {
  return Writing(point_, StoreOperation::kWriteChunk, [&] { return inner_.WriteChunk(id, offset, data, taken); });
}
absl::Status CrashingPayloadStore::FinishUpload(const UploadId& id) {
  return Writing(point_, StoreOperation::kFinishUpload, [&] { return inner_.FinishUpload(id); });
}
absl::Status CrashingPayloadStore::MoveUploadToBlob(const UploadId& id) {
  return Writing(point_, StoreOperation::kMoveUploadToBlob, [&] { return inner_.MoveUploadToBlob(id); });
}
absl::StatusOr<SpoolRef> CrashingPayloadStore::AddUploadToSpool(const UploadId& id, const RoundId& round) {
  monitor_.OnSpool(round);
  if (!monitor_.is_owners()) return SpoolRef{};
  return Writing(point_, StoreOperation::kAddUploadToSpool, [&] { return inner_.AddUploadToSpool(id, round); });
}
absl::StatusOr<std::string> CrashingPayloadStore::WriteBlob(
    const std::function<absl::Status(const ByteSink& take)>& write) {
  return Writing(point_, StoreOperation::kWriteBlob, [&] { return inner_.WriteBlob(write); });
}
absl::StatusOr<SpoolRef> CrashingPayloadStore::AppendToSpool(const RoundId& round, std::string_view bytes) {
  monitor_.OnSpool(round);
  // It would travel in a batch that is never committed.
  if (!monitor_.is_owners()) return SpoolRef{.length = static_cast<int64_t>(bytes.size())};
  return Writing(point_, StoreOperation::kAppendToSpool, [&] { return inner_.AppendToSpool(round, bytes); });
}
absl::Status CrashingPayloadStore::WriteCheckpoint(const RoundId& round, const std::string& name,
                                                   const std::function<absl::Status(const ByteSink& take)>& write) {
  return Writing(point_, StoreOperation::kWriteCheckpoint, [&] { return inner_.WriteCheckpoint(round, name, write); });
}

// --- What reads, deletes or flushes --------------------------------------------------------------

absl::StatusOr<PayloadStore::Upload> CrashingPayloadStore::GetUpload(const UploadId& id) {
  return Between(point_, StoreOperation::kGetUpload, [&] { return inner_.GetUpload(id); });
}
PayloadStore::UploadUse CrashingPayloadStore::GetUploadUse(std::string_view id_suffix) {
  return Between(point_, StoreOperation::kGetUploadUse, [&] { return inner_.GetUploadUse(id_suffix); });
}
absl::StatusOr<std::shared_ptr<const BlobView>> CrashingPayloadStore::OpenUpload(const UploadId& id) {
  return Between(point_, StoreOperation::kOpenUpload, [&] { return inner_.OpenUpload(id); });
}
absl::Status CrashingPayloadStore::DeleteUpload(const UploadId& id) {
  return Between(point_, StoreOperation::kDeleteUpload, [&] { return inner_.DeleteUpload(id); });
}
int64_t CrashingPayloadStore::DeleteStaleUploads(absl::Time now, absl::Duration keep) {
  return Between(point_, StoreOperation::kDeleteStaleUploads, [&] { return inner_.DeleteStaleUploads(now, keep); });
}
absl::StatusOr<int64_t> CrashingPayloadStore::GetBlobSize(const std::string& digest) {
  return Between(point_, StoreOperation::kGetBlobSize, [&] { return inner_.GetBlobSize(digest); });
}
absl::StatusOr<std::shared_ptr<const BlobView>> CrashingPayloadStore::OpenBlob(const std::string& digest) {
  return Between(point_, StoreOperation::kOpenBlob, [&] { return inner_.OpenBlob(digest); });
}
absl::StatusOr<PayloadStore::BlobRemains> CrashingPayloadStore::DeleteBlob(const std::string& digest) {
  return Between(point_, StoreOperation::kDeleteBlob, [&] { return inner_.DeleteBlob(digest); });
}
absl::StatusOr<std::vector<PayloadStore::BlobInfo>> CrashingPayloadStore::ListBlobs() {
  return Between(point_, StoreOperation::kListBlobs, [&] { return inner_.ListBlobs(); });
}
absl::Status CrashingPayloadStore::SyncSpools() {
  return Between(point_, StoreOperation::kSyncSpools, [&] { return inner_.SyncSpools(); });
}
absl::StatusOr<std::string> CrashingPayloadStore::ReadFromSpool(const RoundId& round, const SpoolRef& ref) {
  return Between(point_, StoreOperation::kReadFromSpool, [&] { return inner_.ReadFromSpool(round, ref); });
}
absl::StatusOr<int64_t> CrashingPayloadStore::RollSpool(const RoundId& round) {
  return Between(point_, StoreOperation::kRollSpool, [&] { return inner_.RollSpool(round); });
}
absl::Status CrashingPayloadStore::DeleteSpoolSegments(const RoundId& round, int64_t through) {
  return Between(point_, StoreOperation::kDeleteSpoolSegments,
                 [&] { return inner_.DeleteSpoolSegments(round, through); });
}
absl::StatusOr<std::string> CrashingPayloadStore::ReadCheckpoint(const RoundId& round, const std::string& name) {
  return Between(point_, StoreOperation::kReadCheckpoint, [&] { return inner_.ReadCheckpoint(round, name); });
}
absl::Status CrashingPayloadStore::DeleteCheckpointsExcept(const RoundId& round, const std::string& name) {
  return Between(point_, StoreOperation::kDeleteCheckpointsExcept,
                 [&] { return inner_.DeleteCheckpointsExcept(round, name); });
}
absl::Status CrashingPayloadStore::DeleteRound(const RoundId& round) {
  return Between(point_, StoreOperation::kDeleteRound, [&] { return inner_.DeleteRound(round); });
}
absl::StatusOr<std::vector<RoundId>> CrashingPayloadStore::ListRounds() {
  return Between(point_, StoreOperation::kListRoundsWithPayloads, [&] { return inner_.ListRounds(); });
}

}  // namespace sheaf::simulation
