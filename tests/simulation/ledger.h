// Ledger: what was said over the wire. It sees every Sync as it reaches the server and every answer as it leaves, and
// checks the answers: durable before told, one verdict per result and a true one, leases only of the own population
// and never promised for longer than the store holds them, renewed where there was progress, nothing forgotten that the
// worker does not know of; of announced rounds to those that want to prepare, and OPENED, with the broadcast, to
// whoever does not know of it yet, once that is durable.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "sheaf/v1/work_service.pb.h"
#include "storage/task_store.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/statistics.h"

namespace sheaf::simulation {

class StoreMonitor;

class Ledger {
 public:
  Ledger(Journal& journal, Statistics& statistics) : journal_(journal), statistics_(statistics) {}

  // What the task of this lease was to be computed from, as its worker was told.
  std::string PayloadOf(const std::string& token) const {
    const auto found = payloads_.find(token);
    return found == payloads_.end() ? "-1" : found->second;
  }

  // A worker comes to life.
  void Register(const std::string& worker, const std::string& population) { populations_[worker] = population; }
  const std::string& PopulationOf(const std::string& worker) const { return populations_.at(worker); }

  // When a call reached the server, and when its answer left.
  struct CallTimes {
    absl::Time arrival;
    absl::Time now;
  };
  // A call reaches the server; its number.
  int64_t OnSyncArrives(const v1::SyncRequest& request);
  // The answer leaves the server. `store` shows what is durable.
  void OnSyncAnswered(int64_t call, const v1::SyncRequest& request, const v1::SyncResponse& response,
                      const CallTimes& times, TaskStore& store, const StoreMonitor& monitor);
  // It ended without an answer.
  void OnSyncEnded(int64_t call, const v1::SyncRequest& request);
  // The server is gone, with all calls.
  void OnCrash() { open_.clear(); }

  // A worker sent a contribution of this task under this token.
  bool WasOffered(const std::string& task, const std::string& token) const { return offered_.contains({task, token}); }
  // Whoever has this lease was told that its round is open, by OPENED or with the lease.
  bool WasToldOpen(const std::string& token) const { return told_open_.contains(token); }
  // A crash undid what an EPHEMERAL round had accepted.
  void OnForgotten(const std::string& task) { acked_.erase(task); }
  // Task to token of the contributions that a worker was told to be accepted, and that are not forgotten since.
  const std::map<std::string, std::string>& acked() const { return acked_; }

 private:
  void CheckVerdict(const v1::TaskResult& result, const v1::ResultVerdict& verdict, TaskStore& store,
                    const StoreMonitor& monitor);
  // What a verdict says of the round must be so.
  void CheckReason(const v1::ResultVerdict& verdict, const RoundId& round, TaskStore& store);
  void CheckRenewal(const v1::SyncRequest& request, const std::string& task, const std::string& token,
                    absl::Time arrival, const StoreMonitor& monitor);
  void CheckPromise(std::string_view what, const v1::SyncRequest& request, const std::string& task,
                    const std::string& token, const google::protobuf::Duration& remaining, absl::Time arrival,
                    const StoreMonitor& monitor);
  // The update tells that the round of an announced lease is open; or it does not, and `held` waits for that.
  void CheckOpened(const v1::HeldLease& held, const v1::LeaseUpdate& update, const CallTimes& times, TaskStore& store,
                   const StoreMonitor& monitor);
  void CheckLease(const v1::SyncRequest& request, const v1::Lease& lease, const CallTimes& times, TaskStore& store,
                  const StoreMonitor& monitor);
  // Of an attempt that was prepared: its time counts from when its worker was told.
  void CheckAttemptDeadline(const TaskId& task, const std::string& token, absl::Time now, const StoreMonitor& monitor);
  void CheckNothingWithheld(const v1::SyncRequest& request, const v1::SyncResponse& response, TaskStore& store);

  struct Open {
    // The worker's calls that reached the server while it was open, and those that were there before.
    bool is_alone = true;
    // Tokens of the leases of which this call was the first to report so much progress.
    std::set<std::string> advanced;
  };

  Journal& journal_;
  Statistics& statistics_;
  std::map<std::string, std::string> populations_;
  std::set<std::pair<std::string, std::string>> offered_;
  std::map<std::string, std::string> acked_;
  std::set<std::string> told_open_;
  // Of leases.
  std::map<std::string, std::string> payloads_;
  // Workers that ever asked for something to prepare.
  std::set<std::string> prepares_;
  // Tokens that were granted to be prepared.
  std::set<std::string> announced_;
  // The most progress of a lease in any call that arrived.
  std::map<std::string, int64_t> progress_;
  int64_t newest_call_ = 0;
  std::map<std::string, std::map<int64_t, Open>> open_;
};

}  // namespace sheaf::simulation
