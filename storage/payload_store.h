// PayloadStore: the bytes that are too large or too short-lived for the task store. Three kinds:
//
//   blobs         broadcasts and aggregates, named by their SHA-256, immutable
//   spools        per round, the accepted contributions that no checkpoint covers yet; segments of appended
//                 records, deleted whole (unlinked: nothing of an individual stays behind)
//   checkpoints   per round, merged accumulator states
//
// and uploads, which become blobs or spool segments when they are finished.
//
// What the methods write is durable when they return OK, but for AppendToSpool, whose bytes are durable after
// the next SyncSpools (one flush serves all the appends of a batch), AddUploadToSpool likewise, and for uploads, which
// are durable once finished. Nothing waits for a deletion to be durable: what a crash of the machine brings back, its
// owner finds at the next start and deletes again. Everything read back is checked.
// Codes: RESOURCE_EXHAUSTED when the disk is full (nothing changed); DATA_LOSS when bytes fail their checksum, naming
// the file; NOT_FOUND; INTERNAL for a failed flush, after which the process must stop.
//
// Thread-safe: uploads and reads run on any thread while the core appends and deletes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/byte_sink.h"
#include "storage/blob_view.h"
#include "storage/records.h"

namespace sheaf {

class PayloadStore {
 public:
  virtual ~PayloadStore() = default;

  // --- Uploads ---------------------------------------------------------------------------------

  struct Upload {
    UploadId id;
    int64_t size_bytes = 0;
    // Announced SHA-256, hex.
    std::string digest;
    int64_t committed_bytes = 0;
    bool is_finished = false;
  };
  // Starting one that exists with the same size and digest returns it as it is; with others, ALREADY_EXISTS.
  // INVALID_ARGUMENT if the digest is not a SHA-256 in hex or the size is negative. Neither this nor GetUpload waits
  // for a chunk that is being written: committed are those before it.
  virtual absl::StatusOr<Upload> StartUpload(const UploadId& id, int64_t size_bytes, const std::string& digest) = 0;
  // The same for bytes that must not reach a disk: they are kept in memory, are gone when the process ends, and never
  // become a blob or part of a spool (FAILED_PRECONDITION). Room for all of them is set aside at once: whoever starts
  // them bounds them (GetUploadUse).
  virtual absl::StatusOr<Upload> StartMemoryUpload(const UploadId& id, int64_t size_bytes,
                                                   const std::string& digest) = 0;
  // NOT_FOUND.
  virtual absl::StatusOr<Upload> GetUpload(const UploadId& id) = 0;
  // Appends at committed_bytes; a chunk wholly below it changes nothing. Returns the committed bytes. OUT_OF_RANGE if
  // it leaves a gap or runs past the announced size. NOT_FOUND.
  absl::StatusOr<int64_t> WriteChunk(const UploadId& id, int64_t offset, std::string_view data) {
    return WriteChunk(id, offset, data, nullptr);
  }
  // The same, and tells `taken` how many bytes will be committed, before it writes the chunk: what comes for this
  // upload meanwhile waits for it. Not if the chunk is wrong, completes the upload, or follows one that could not be
  // written: then only the result says what became of it.
  using ChunkTaken = std::function<void(int64_t committed_bytes)>;
  virtual absl::StatusOr<int64_t> WriteChunk(const UploadId& id, int64_t offset, std::string_view data,
                                             const ChunkTaken& taken) = 0;
  // Checks size and digest, and makes the bytes durable. Finishing a finished one is OK; what an earlier process had
  // checked is read again, so that moving it need not. FAILED_PRECONDITION if bytes are missing. DATA_LOSS if the
  // digest differs (what was not finished before is deleted). NOT_FOUND.
  virtual absl::Status FinishUpload(const UploadId& id) = 0;
  // A finished upload becomes the blob of its digest; the upload is gone.
  virtual absl::Status MoveUploadToBlob(const UploadId& id) = 0;
  // A finished upload becomes a segment of the round's spool of its own, without a copy. Its place in the spool is not
  // durable until SyncSpools, and the upload stays until it is deleted: whoever records the place deletes it after the
  // commit, and if there is none, it can be handed in again.
  virtual absl::StatusOr<SpoolRef> AddUploadToSpool(const UploadId& id, const RoundId& round) = 0;
  // The bytes of a finished upload. FAILED_PRECONDITION if it is not finished. NOT_FOUND.
  virtual absl::StatusOr<std::shared_ptr<const BlobView>> OpenUpload(const UploadId& id) = 0;
  // OK also if there is none.
  virtual absl::Status DeleteUpload(const UploadId& id) = 0;
  struct UploadUse {
    // All that there are, finished or not, with their announced sizes.
    int64_t num_uploads = 0;
    int64_t disk_bytes = 0;
    int64_t memory_bytes = 0;
    // Those with ids that end in `id_suffix`.
    int64_t num_matching = 0;
    int64_t matching_disk_bytes = 0;
    int64_t matching_memory_bytes = 0;
  };
  // Never waits for one that is being written.
  virtual UploadUse GetUploadUse(std::string_view id_suffix) = 0;
  // Deletes uploads that nobody started, wrote to or finished for `keep`, and returns how many. No clock is read: an
  // upload is as old as the first call after it was last used, and those of an earlier process as the first call of
  // all. What cannot be deleted is logged, and tried again by the next call. Never waits for one that is being written.
  virtual int64_t DeleteStaleUploads(absl::Time now, absl::Duration keep) = 0;

  // --- Blobs -----------------------------------------------------------------------------------

  // Stores bytes and returns their digest. Storing what is there already is OK.
  absl::StatusOr<std::string> PutBlob(std::string_view bytes) {
    return WriteBlob([bytes](const ByteSink& take) { return take(bytes); });
  }
  // The same, of the bytes that `write` gives: nobody need put large ones together. Its error is returned, and nothing
  // was stored.
  virtual absl::StatusOr<std::string> WriteBlob(const std::function<absl::Status(const ByteSink& take)>& write) = 0;
  // NOT_FOUND.
  virtual absl::StatusOr<int64_t> GetBlobSize(const std::string& digest) = 0;
  bool HasBlob(const std::string& digest) { return GetBlobSize(digest).ok(); }
  // NOT_FOUND.
  virtual absl::StatusOr<std::shared_ptr<const BlobView>> OpenBlob(const std::string& digest) = 0;
  // What is left of a blob that has no name any more. To free the bytes of a large one takes its time (on Linux some
  // 30 ms for a GiB), and that is where it is dropped.
  using BlobRemains = std::shared_ptr<const void>;
  // OK also if there is none.
  virtual absl::StatusOr<BlobRemains> DeleteBlob(const std::string& digest) = 0;
  struct BlobInfo {
    std::string digest;
    int64_t size_bytes = 0;
  };
  virtual absl::StatusOr<std::vector<BlobInfo>> ListBlobs() = 0;

  // --- Spools ----------------------------------------------------------------------------------

  // Appends to the round's open segment. Not durable until SyncSpools.
  virtual absl::StatusOr<SpoolRef> AppendToSpool(const RoundId& round, std::string_view bytes) = 0;
  // Makes all appends so far durable. INTERNAL also if any other flush has ever failed, on whatever thread: then no
  // promise can rest on this store any more.
  virtual absl::Status SyncSpools() = 0;
  // NOT_FOUND if the segment is gone. DATA_LOSS if the bytes do not match the ref's checksum.
  virtual absl::StatusOr<std::string> ReadFromSpool(const RoundId& round, const SpoolRef& ref) = 0;
  // Ends the open segment, so that later appends go to a new one; returns the number of the newest segment so far (0 if
  // there is none).
  virtual absl::StatusOr<int64_t> RollSpool(const RoundId& round) = 0;
  // Unlinks the segments with numbers up to and including `through`.
  virtual absl::Status DeleteSpoolSegments(const RoundId& round, int64_t through) = 0;

  // --- Checkpoints -----------------------------------------------------------------------------

  // Stores the bytes that `write` gives, in little memory. Its error is returned, and nothing was stored. `name` is
  // [A-Za-z0-9_-]+, INVALID_ARGUMENT otherwise, and new for this round.
  virtual absl::Status WriteCheckpoint(const RoundId& round, const std::string& name,
                                       const std::function<absl::Status(const ByteSink& take)>& write) = 0;
  absl::Status PutCheckpoint(const RoundId& round, const std::string& name, std::string_view bytes) {
    return WriteCheckpoint(round, name, [bytes](const ByteSink& take) { return take(bytes); });
  }
  // DATA_LOSS if its checksum does not match. NOT_FOUND.
  virtual absl::StatusOr<std::string> ReadCheckpoint(const RoundId& round, const std::string& name) = 0;
  // Deletes the round's checkpoints but the one named (none, if empty).
  virtual absl::Status DeleteCheckpointsExcept(const RoundId& round, const std::string& name) = 0;

  // Deletes the round's spool and checkpoints. OK also if there are none.
  virtual absl::Status DeleteRound(const RoundId& round) = 0;
  // Rounds that have spool segments or checkpoints, and perhaps some that had.
  virtual absl::StatusOr<std::vector<RoundId>> ListRounds() = 0;
};

}  // namespace sheaf
