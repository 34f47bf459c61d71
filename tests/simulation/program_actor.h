// ProgramActor: a program that uploads a broadcast, if it has one, creates one round, with one request id however often
// the answer is lost, watches it to its end or until it is deleted, reads what it released, and perhaps cancels it. Or
// it announces the round first, and opens it later, or too late, or twice, or never.
#pragma once

#include <string>

#include "tests/simulation/faulty_transport.h"
#include "tests/simulation/round_plan.h"
#include "tests/simulation/weather.h"

namespace sheaf::simulation {

class ProgramActor {
 public:
  // Both outlive the actor.
  // `continued` creates the round that this one's continues; null, if it continues none. It outlives the actor, too.
  ProgramActor(Weather& weather, SimServers& server, const std::string& authorization, RoundPlan plan,
               const ProgramActor* continued = nullptr);

  // It has seen the round's end.
  bool is_done() const { return is_done_; }
  bool has_cancelled() const { return has_cancelled_; }
  // Empty until the program knows it.
  const std::string& round() const { return round_; }
  const RoundPlan& plan() const { return plan_; }
  FaultyTransport& link() { return transport_; }

 private:
  // What the broadcast is a patch of, and the broadcast unless it comes inside the call; those that are not there.
  void Upload() { UploadFrom(0); }
  void UploadFrom(size_t number);
  const SimBroadcast* FileOf(size_t number) const;
  void WriteChunk(size_t number, const std::string& upload, int64_t offset);
  void FinishUpload(size_t number, const std::string& upload);
  // The broadcast is there: the round can be created with it, or opened.
  void OnUploaded() { round_.empty() ? Create() : Open(); }
  void Create();
  void BeginOpening();
  // What the broadcast is a patch of has gone before it was needed.
  bool MayPatchAgain(const absl::Status& refusal);
  void Open();
  void OnOpened(const v1::Round& round);
  // With another broadcast, if so planned; once it is open.
  void OpenAgain();
  // It said that the round cannot be opened any more.
  void OnRefused(const std::string& error);
  void Watch();
  void ReadAggregate();
  void Cancel();
  absl::Duration Pause() { return weather_.chance.Between(absl::Milliseconds(100), absl::Seconds(2)); }

  Weather& weather_;
  SimServers& server_;
  FaultyTransport transport_;
  const RoundPlan plan_;
  const ProgramActor* continued_;
  std::string round_;
  std::string etag_;
  // As far as it is read.
  std::string aggregate_;
  bool has_cancelled_ = false;
  bool is_done_ = false;
  bool opens_inline_ = false;
};

}  // namespace sheaf::simulation
