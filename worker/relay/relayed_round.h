// RelayedRound: a round on the server below, from its creation to the partial aggregate that it releases, as the calls
// that this takes (call_sequence.h).
//
//   RelayedRound round({.spec = spec, .request_id = RelayedRequestId(lease), .broadcast = broadcast});
//   RETURN_IF_ERROR(RunBlocking(transport, round));
//   if (!round.needs_broadcast()) LogInfo("{} bytes", std::move(round).TakeContribution().size());
//
// Any of its calls may be repeated. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "sdk/cpp/client/blob_client.h"
#include "sdk/cpp/client/call_sequence.h"
#include "sdk/cpp/client/range_joiner.h"
#include "sheaf/v1/round_service.pb.h"

namespace sheaf {

class RelayedRound final : public CallSequence {
 public:
  struct Params {
    v1::RoundSpec spec;
    // The same gets the same round.
    std::string request_id;
    // Of the spec's digest, or the whole file that it stands for if it is a patch's; null: the caller has not fetched
    // it.
    std::shared_ptr<const std::string> broadcast;
    // RESOURCE_EXHAUSTED if what it releases is larger.
    int64_t bytes_max = kReadBytesMax;
  };
  explicit RelayedRound(Params params) : params_(std::move(params)) {}

  bool done() const override { return phase_ == Phase::kDone; }
  // Of CreateRound; ABORTED, with its error, if the round ended without an aggregate; DATA_LOSS.
  const absl::Status& status() const override { return status_; }
  NextCall Next() override;
  void OnDone(const absl::Status& call) override;

  // Grows while calls are answered and workers have tasks of the round, or hand them in: not while it only waits.
  int64_t progress() const { return progress_; }
  // It waits for the workers below.
  bool is_watching() const { return phase_ == Phase::kWatch; }
  // Empty before it is created.
  const std::string& round() const { return round_.id(); }
  // After done() with OK: the server below has no such broadcast, and neither has this.
  bool needs_broadcast() const { return needs_broadcast_; }
  // After done() with OK, otherwise: a serialised v1::Contribution, with the round's metrics.
  std::string TakeContribution() &&;

 private:
  enum class Phase { kCreate, kUpload, kWatch, kRead, kDone };
  void OnCreated(const absl::Status& call);
  void OnUploadCall(const absl::Status& call);
  void OnSeen(const absl::Status& call);
  void OnRead(const absl::Status& call);
  void See(const v1::Round& round);
  void End(absl::Status status);
  // The response of the newest call.
  template <typename Response>
  Response& Answer() {
    return static_cast<Response&>(*response_);
  }

  Params params_;
  Phase phase_ = Phase::kCreate;
  absl::Status status_;
  std::shared_ptr<google::protobuf::Message> response_;
  std::optional<UploadSession> upload_;
  int num_uploads_ = 0;
  v1::Round round_;
  RangeJoiner file_;
  std::string digest_;
  bool needs_broadcast_ = false;
  int64_t progress_ = 0;
};

}  // namespace sheaf
