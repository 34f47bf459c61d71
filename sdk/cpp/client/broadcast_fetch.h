// BroadcastFetch: the whole file of a broadcast, also where that is a patch of others (blob_service.proto): these are
// read, too, as far as nobody has them here, and put together.
//
//   BroadcastFetch fetch(digest, {.bytes_max = 1 << 30});
//   RETURN_IF_ERROR(RunBlocking(transport, fetch));
//   auto file = std::make_shared<const std::string>(fetch.TakeBytes());
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sdk/cpp/client/blob_client.h"
#include "sdk/cpp/client/call_sequence.h"

namespace sheaf {

class BroadcastFetch final : public CallSequence {
 public:
  struct Options {
    // The whole file of a broadcast that was fetched before; null if it is not at hand. Need not be set.
    std::function<std::shared_ptr<const std::string>(const std::string& digest)> find;
    // Of the file; and all that is read for it, with its patches, is at most twice that.
    int64_t bytes_max = kReadBytesMax;
    // As in UploadParams.
    ChunkSize* chunk_size = nullptr;
  };
  BroadcastFetch(std::string digest, Options options);

  bool done() const override { return done_; }
  // The codes of BlobFetch; DATA_LOSS also if a patch does not fit what it is a patch of.
  const absl::Status& status() const override { return status_; }
  NextCall Next() override { return fetch_->Next(); }
  bool TakeLess() override { return fetch_->TakeLess(); }
  void OnDone(const absl::Status& call) override;

  // After done() with OK.
  std::string TakeBytes() { return std::move(file_); }
  // Read from the server.
  int64_t bytes_received() const { return bytes_received_; }

 private:
  absl::Status OnFetched(std::string bytes);
  // Puts the patches upon the whole file.
  absl::Status PutTogether(std::string whole);
  void Fetch(const std::string& digest);

  const std::string digest_;
  const Options options_;
  std::unique_ptr<BlobFetch> fetch_;
  // Of the broadcasts between this one and the whole one, from this one on.
  std::vector<std::string> patches_;
  std::string file_;
  int64_t bytes_received_ = 0;
  bool done_ = false;
  absl::Status status_;
};

}  // namespace sheaf
