// LocalServer: a server in this process, of what programs and blob clients need: uploads, ranges, rows, and rounds
// whose tasks are computed on the spot and folded by the real RoundAccumulator. It counts calls and can be told to
// misbehave.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sdk/cpp/client/transport.h"

namespace sheaf {

class LocalServer final : public Transport {
 public:
  // Computes one task of a round from the broadcast's bytes.
  using Computing = std::function<v1::Contribution(const v1::RoundSpec& spec, const v1::TaskSpec& task,
                                                   const std::string& broadcast)>;
  // Asked before (`is_answer` false) and after each call; an error is what the caller gets.
  using Fault = std::function<absl::Status(std::string_view method, bool is_answer)>;

  explicit LocalServer(Computing compute = nullptr) : compute_(std::move(compute)) {}

  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override;

  void set_fault(Fault fault) { fault_ = std::move(fault); }
  // Turns the outcome of the next rounds into this.
  void set_round_state(v1::RoundState state) { round_state_ = state; }
  // Changes aggregates before they are released and named by their digest.
  void set_tamper(std::function<void(std::string&)> tamper) { tamper_ = std::move(tamper); }
  // Changes a byte of every aggregate under its digest.
  void CorruptAggregates();
  // Fold contributions last to first.
  void set_reverse(bool reverse) { is_reversed_ = reverse; }
  // Drops what was uploaded but not finished, keeping `keep` bytes of each; with keep < 0, the uploads themselves.
  void LoseUploads(int64_t keep);
  // Largest range and largest piece of rows in one answer.
  void set_answer_bytes_max(size_t bytes) { answer_bytes_max_ = bytes; }
  void set_upload_verdict(v1::StartUploadResponse::Verdict verdict) { upload_verdict_ = verdict; }
  // Broadcasts may be patches, whose bases are kept with them. Without, it is a server that does not know of them.
  void set_takes_patches(bool takes_patches) { takes_patches_ = takes_patches; }

  const std::map<std::string, std::string>& blobs() const { return blobs_; }
  // What each upload said of the population that it is for, in their order.
  const std::vector<std::string>& upload_populations() const { return upload_populations_; }
  // All that were created, in their order.
  std::vector<v1::Round> rounds() const;
  // What the next announced rounds become at once, as on a server that does not know them.
  void set_announced_state(v1::RoundState state) { announced_state_ = state; }
  // Aggregates that travel with GetRound may be this large; none do by default.
  void set_aggregates_inline_max(int64_t bytes) { aggregates_inline_max_ = bytes; }
  // Broadcasts that travel with OpenRound may be this large.
  void set_inline_bytes_max(size_t bytes) { inline_bytes_max_ = bytes; }
  int num_calls(const std::string& method) const;
  // Bytes that chunks carried.
  int64_t bytes_written() const { return bytes_written_; }

 private:
  struct Upload {
    std::string digest;
    int64_t size = 0;
    std::string bytes;
  };
  struct Sealed {
    v1::RoundSpec spec;
    v1::Round round;
    std::string aggregate;
  };

  absl::Status Handle(std::string_view method, const google::protobuf::Message& request,
                      google::protobuf::Message* response);
  absl::Status StartUpload(const v1::StartUploadRequest& request, v1::StartUploadResponse& response);
  absl::Status WriteChunk(const v1::WriteChunkRequest& request, v1::WriteChunkResponse& response);
  absl::Status QueryUpload(const v1::QueryUploadRequest& request, v1::QueryUploadResponse& response);
  absl::Status FinishUpload(const v1::FinishUploadRequest& request);
  // INVALID_ARGUMENT if it is a patch that does not fit.
  absl::Status Store(const std::string& digest, std::string bytes);
  absl::Status ReadBlob(const v1::ReadBlobRequest& request, v1::ReadBlobResponse& response);
  absl::Status SelectRows(const v1::SelectRowsRequest& request, v1::SelectRowsResponse& response);
  absl::Status CreateRound(const v1::CreateRoundRequest& request, v1::CreateRoundResponse& response);
  absl::Status OpenRound(const v1::OpenRoundRequest& request, v1::OpenRoundResponse& response);
  absl::Status CancelRound(const v1::CancelRoundRequest& request, v1::CancelRoundResponse& response);
  // Computes all tasks, and what the round will release.
  absl::Status Compute(const v1::RoundSpec& spec, Sealed& sealed);
  Sealed* Find(const std::string& round);
  absl::Status GetRound(const v1::GetRoundRequest& request, v1::GetRoundResponse& response);
  absl::Status ReadAggregate(const v1::ReadAggregateRequest& request, v1::ReadAggregateResponse& response);

  const Computing compute_;
  Fault fault_;
  std::function<void(std::string&)> tamper_;
  v1::RoundState round_state_ = v1::SUCCEEDED;
  v1::RoundState announced_state_ = v1::ANNOUNCED;
  int64_t aggregates_inline_max_ = -1;
  size_t inline_bytes_max_ = 1 << 20;
  v1::StartUploadResponse::Verdict upload_verdict_ = v1::StartUploadResponse::SEND;
  bool is_reversed_ = false;
  size_t answer_bytes_max_ = 1 << 20;
  int64_t bytes_written_ = 0;
  std::map<std::string, int> num_calls_;
  std::map<std::string, std::string> blobs_;
  // Of blobs that are patches: what they are a patch of, and the whole file that they stand for.
  struct Patch {
    std::string base;
    std::string whole;
  };
  std::map<std::string, Patch> patches_;
  bool takes_patches_ = false;
  // By upload id, which is the request id.
  std::map<std::string, Upload> uploads_;
  std::vector<std::string> upload_populations_;
  std::vector<Sealed> rounds_;
};

}  // namespace sheaf
