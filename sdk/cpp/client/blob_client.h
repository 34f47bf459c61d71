// The data plane from the caller's side: uploads that resume, ranges, and rows of tensors by key.
//
//   ASSIGN_OR_RETURN(std::string digest, UploadBlob(transport, random, bytes, spec.population()));
//   ASSIGN_OR_RETURN(std::string file, ReadBlob(transport, digest));
//   ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors, SelectRows(transport, digest, {selection}));
//
// Each function is RunBlocking over a sequence that the worker drives itself (call_sequence.h). Answers of the server
// are checked before they are used: a piece out of order or of a wrong size is DATA_LOSS, never a wrong tensor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/wire/tensor.h"
#include "base/random.h"
#include "sdk/cpp/client/call_sequence.h"
#include "sdk/cpp/client/range_joiner.h"
#include "sheaf/v1/blob_service.pb.h"

namespace sheaf {

// The most bytes of a file that one call moves. It shrinks when calls take too long. Transfers over one link share it.
class ChunkSize {
 public:
  // Smaller chunks would cost more per call than they carry.
  static constexpr int64_t kLeast = 64 << 10;

  int64_t bytes_max() const { return bytes_max_; }
  // A call of so many bytes took too long. False if there is no smaller size.
  bool Shrink(int64_t bytes) {
    if (bytes <= kLeast) return false;
    bytes_max_ = std::min(bytes_max_, std::max(bytes / 8, kLeast));
    return true;
  }

 private:
  // No bound of ours: the server says how much it takes and gives.
  int64_t bytes_max_ = std::numeric_limits<int64_t>::max();
};

struct UploadParams {
  // Must outlive the session.
  std::string_view bytes;
  // SHA-256 of `bytes` in hex; computed when empty.
  std::string digest;
  // Idempotency key, 1 to 60 characters.
  std::string request_id;
  // Both set: the bytes are a serialised Contribution for this task, computed under this lease.
  std::string task;
  std::string lease_token;
  // Of a broadcast: the population of the rounds that will have it. Empty: anywhere.
  std::string population;
  // Chunks are as large as the server allows, up to this.
  int64_t chunk_bytes_max = 2 << 20;
  // Null: a size of this session's own. Must outlive it.
  ChunkSize* chunk_size = nullptr;
};

// Start, chunks, finish. After UNAVAILABLE or a gap it asks what was committed and goes on from there. If the upload
// vanished or arrived damaged, it starts again. It gives up after a few such turns without progress; bytes that the
// server had lost and takes again are no progress.
class UploadSession final : public CallSequence {
 public:
  explicit UploadSession(UploadParams params);

  bool done() const override { return phase_ == Phase::kDone; }
  const absl::Status& status() const override { return status_; }
  NextCall Next() override;
  bool TakeLess() override;
  void OnDone(const absl::Status& call) override;

  // What the server said to the last StartUpload. ALREADY_STORED, NOT_NEEDED and LEASE_LOST end the session with OK and
  // no byte sent; SEND and OK mean that everything arrived.
  v1::StartUploadResponse::Verdict verdict() const { return verdict_; }
  const std::string& upload_id() const { return upload_id_; }
  // The server takes patches of this broadcast.
  bool takes_patches() const { return takes_patches_; }
  const std::string& digest() const { return params_.digest; }

 private:
  enum class Phase { kStart, kWrite, kQuery, kFinish, kDone };
  ChunkSize& chunk_size() { return params_.chunk_size != nullptr ? *params_.chunk_size : own_chunk_size_; }
  void OnStarted(const v1::StartUploadResponse& response);
  void OnCommitted(int64_t committed);
  void Recover(const absl::Status& call);
  void End(absl::Status status);

  UploadParams params_;
  Phase phase_ = Phase::kStart;
  absl::Status status_;
  v1::StartUploadResponse::Verdict verdict_ = v1::StartUploadResponse::VERDICT_UNSPECIFIED;
  std::string upload_id_;
  bool takes_patches_ = false;
  int64_t committed_ = 0;
  // The most that was ever committed, and how often the server has had less since.
  int64_t most_committed_ = 0;
  int setbacks_ = 0;
  int64_t chunk_bytes_ = 0;
  ChunkSize own_chunk_size_;
  // Of the newest chunk.
  int64_t sent_bytes_ = 0;
  int restarts_ = 0;
  int turns_without_progress_ = 0;
  std::shared_ptr<google::protobuf::Message> response_;
};

// Reads a blob by ranges and checks its digest. Of a patch these are its own bytes (BroadcastFetch puts it together).
class BlobFetch final : public CallSequence {
 public:
  // RESOURCE_EXHAUSTED, before more than a piece has arrived, if it is larger than `bytes_max`.
  // `chunk_size` as in UploadParams.
  explicit BlobFetch(std::string digest, int64_t bytes_max = kReadBytesMax, ChunkSize* chunk_size = nullptr)
      : digest_(std::move(digest)), bytes_max_(bytes_max), chunk_size_(chunk_size) {}

  bool done() const override { return done_; }
  const absl::Status& status() const override { return status_; }
  NextCall Next() override;
  bool TakeLess() override;
  void OnDone(const absl::Status& call) override;

  // After done() with OK.
  std::string TakeBytes() { return std::move(file_).Take(); }

 private:
  std::string digest_;
  const int64_t bytes_max_;
  ChunkSize* const chunk_size_;
  // Of the newest call; 0: as much as the server gives.
  int64_t asked_bytes_ = 0;
  RangeJoiner file_;
  bool done_ = false;
  absl::Status status_;
  std::shared_ptr<v1::ReadBlobResponse> response_;
};

// Reads rows of tensors of a broadcast, following the cursor and joining the pieces. Each request asks for a window of
// the rows only: it travels again with each of its pages, so that asking for all rows at once would take time in
// proportion to the square of their number. Whatever the server answers, the fetch ends: it takes no more rows than it
// asked for and no more bytes than it may, and each page must bring some.
class RowFetch final : public CallSequence {
 public:
  // Rows of one request.
  static constexpr int64_t kWindowRows = 1 << 16;

  // RESOURCE_EXHAUSTED once more than `bytes_max` have arrived.
  RowFetch(std::string digest, std::vector<v1::RowSelection> selections, int64_t bytes_max = kReadBytesMax,
           int64_t window_rows = kWindowRows);

  bool done() const override { return done_; }
  const absl::Status& status() const override { return status_; }
  NextCall Next() override;
  void OnDone(const absl::Status& call) override;

  // After done() with OK: one tensor per selection, in their order, named after the tensor it was taken from, of
  // shape [rows selected, shape of one row...].
  std::vector<NamedTensor> TakeTensors() { return std::move(tensors_); }
  // Bytes of tensor data received.
  int64_t bytes_received() const { return bytes_received_; }

 private:
  void AskForNextWindow();
  absl::Status Join(v1::SelectRowsResponse::Piece& piece);
  absl::Status CheckWindowIsComplete() const;
  void End(absl::Status status);

  const int64_t bytes_max_;
  const int64_t window_rows_;
  const std::vector<v1::RowSelection> selections_;
  // The window: selections from `first_selection_` on, the first of them from its row `first_row_` on.
  v1::SelectRowsRequest request_;
  size_t first_selection_ = 0;
  int first_row_ = 0;
  // Behind the window.
  size_t next_selection_ = 0;
  int next_row_ = 0;
  // Of the newest piece; -1 before the first.
  int64_t newest_selection_ = -1;
  std::vector<NamedTensor> tensors_;
  int64_t bytes_received_ = 0;
  bool done_ = false;
  absl::Status status_;
  std::shared_ptr<v1::SelectRowsResponse> response_;
};

struct UploadedBroadcast {
  std::string digest;
  // Later ones may be patches of it.
  bool takes_patches = false;
};

// Uploads a broadcast unless the server has it. INVALID_ARGUMENT if it is malformed, or a patch that does not fit;
// RESOURCE_EXHAUSTED if it is too large; UNAVAILABLE if the server cannot be reached.
// `population` as in UploadParams.
absl::StatusOr<UploadedBroadcast> UploadBroadcast(Transport& transport, Random& random, std::string_view bytes,
                                                  const std::string& population);
// The same, and returns the digest.
absl::StatusOr<std::string> UploadBlob(Transport& transport, Random& random, std::string_view bytes,
                                       const std::string& population = "");

struct ContributionUploadOutcome {
  // SEND: uploaded, hand in `upload_id` with Sync. NOT_NEEDED or LEASE_LOST: nothing was sent, forget it.
  v1::StartUploadResponse::Verdict verdict = v1::StartUploadResponse::VERDICT_UNSPECIFIED;
  std::string upload_id;
};

// Uploads a serialised Contribution. `params.task` and `params.lease_token` are set.
absl::StatusOr<ContributionUploadOutcome> UploadContribution(Transport& transport, UploadParams params);

// NOT_FOUND if there is no such blob; DATA_LOSS if the bytes do not have this digest; RESOURCE_EXHAUSTED if they are
// more than `bytes_max`.
absl::StatusOr<std::string> ReadBlob(Transport& transport, const std::string& digest,
                                     int64_t bytes_max = kReadBytesMax);

// NOT_FOUND: no such blob or tensor. OUT_OF_RANGE: a row is not in the tensor. DATA_LOSS: the answer is inconsistent.
// RESOURCE_EXHAUSTED: the rows have more than `bytes_max`.
absl::StatusOr<std::vector<NamedTensor>> SelectRows(Transport& transport, const std::string& digest,
                                                    std::vector<v1::RowSelection> selections,
                                                    int64_t bytes_max = kReadBytesMax);

}  // namespace sheaf
