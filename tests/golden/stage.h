// Stage: a server, workers and a program under virtual time, whose every call is written down.
//
//   Stage stage("lost_answers", "Answers get lost.");
//   stage.Start("edge-1", {.concurrency = 1, .seed = 1});
//   stage.Lose("edge-1", kSync.name, 2, Delivery::kAnswerLost);        // The answer to its second Sync.
//   const std::string round = stage.CreateRound({.tasks = {R"({"seconds": 3})"}});
//   stage.Play(absl::Seconds(60));
//   Transcript transcript = stage.Finish();
//
// Each way through the network takes 10 ms. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "sdk/cpp/client/transport.h"
#include "tests/golden/staged_server.h"
#include "tests/golden/staged_worker.h"
#include "tests/golden/transcript.h"
#include "tests/simulation/agenda.h"

namespace sheaf::golden {

// What a round of the golden computation is asked for.
struct RoundOptions {
  // Payloads of its tasks.
  std::vector<std::string> tasks;
  // Elements of its output.
  int elements = 4;
  int goal = 0;
  std::string broadcast_digest = {};
  // It waits for OpenRound, which brings the broadcast.
  bool announced = false;
};

class Stage {
 public:
  Stage(const std::string& name, const std::string& about, const std::map<std::string, int64_t>& limits = {});
  ~Stage();

  void Start(const std::string& worker, const WorkerStart& start);
  void Drain(const std::string& worker);
  void KillServer();
  // The worker's `nth` call (from 1) of this method fares so; one that is to break does so after `breaks_after`.
  void Lose(const std::string& worker, std::string_view method, int nth, Delivery delivery,
            absl::Duration breaks_after = absl::Seconds(1));
  // The worker's `nth` call of this method is refused at the server's door.
  void TurnAway(const std::string& worker, std::string_view method, int nth, absl::Status refusal);
  // From now on no call of this worker reaches the server, until the other call.
  void CutOff(const std::string& worker) {
    Note(worker, "is cut off");
    cut_off_.insert(worker);
  }
  void Reconnect(const std::string& worker) {
    Note(worker, "is connected again");
    cut_off_.erase(worker);
  }

  // Time passes.
  void Play(absl::Duration time);
  // A call of the program or an operator, recorded too; plays until it is answered, which it must be with OK.
  template <typename M>
  typename M::Response Ask(const std::string& from, const M& method, const typename M::Request& request) {
    typename M::Response response;
    AskMethod(from, method.name, request, &response);
    return response;
  }
  // The id.
  std::string CreateRound(const RoundOptions& options);
  // An announced one; empty: with no broadcast.
  void OpenRound(const std::string& round, const std::string& broadcast_digest);
  // The digest of a broadcast with the tensor "w" of `rows` rows of 4.
  std::string UploadBroadcast(int rows);

  Transcript Finish();

 private:
  class Link;
  void AskMethod(const std::string& from, std::string_view method, const google::protobuf::Message& request,
                 google::protobuf::Message* response);
  void Send(const std::string& from, std::string_view method, const google::protobuf::Message& request,
            std::function<void(const absl::Status&, const std::string&)> done);
  absl::Duration now() const { return agenda_.now() - start_; }
  void Note(const std::string& who, const std::string& what) { transcript_.incidents.push_back({now(), who, what}); }

  simulation::Agenda agenda_;
  const absl::Time start_ = agenda_.now();
  Transcript transcript_;
  std::unique_ptr<StagedServer> server_;
  std::map<std::string, std::unique_ptr<Link>> links_;
  std::map<std::string, std::unique_ptr<StagedWorker>> workers_;
  std::map<std::tuple<std::string, std::string, int>, std::pair<Delivery, absl::Duration>> losses_;
  std::map<std::tuple<std::string, std::string, int>, absl::Status> refusals_;
  std::map<std::pair<std::string, std::string>, int> counts_;
  std::set<std::string> cut_off_;
  // How to tell the callers of open calls that there is no answer.
  std::map<size_t, std::function<void(const absl::Status&, const std::string&)>> open_;
  int num_requests_ = 0;
};

}  // namespace sheaf::golden
