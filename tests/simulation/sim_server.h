// SimServer: a server in virtual time. All the real parts of one (server/server_parts.h); only the thread and
// the wire are missing.
//
//   server.Call(kSync.name, authorization, request, std::make_unique<v1::SyncResponse>(), on_answer);
//
// Calls that arrive within a moment share a batch. At the store operation where the crash point fires everything in
// memory is gone: the core, the batch, the calls parked in it. After a while it starts again on what is durable.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "google/protobuf/message.h"
#include "server/server_parts.h"
#include "tests/simulation/agenda.h"
#include "tests/simulation/crashing_payload_store.h"
#include "tests/simulation/crashing_task_store.h"
#include "tests/simulation/fault_plan.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/sim_background.h"
#include "tests/simulation/sim_database.h"
#include "tests/simulation/sim_storage.h"
#include "tests/simulation/statistics.h"

namespace sheaf::simulation {

class SimServer final : public Executor {
 public:
  using Message = google::protobuf::Message;
  // `response` is null unless the status is OK.
  using OnAnswer = std::function<void(absl::Status status, const Message* response)>;

  struct Parts {
    Agenda& agenda;
    Journal& journal;
    Statistics& statistics;
    Ledger& ledger;
    SimStorage& storage;
    // Of the faults, and the core's own.
    Random& chance;
    Random& core_random;
    const FaultPlan& plan;
    Limits limits;
    // See WorldOptions.
    int64_t crash_at = 0;
  };
  // `database` is null for a server that has its store to itself; others are numbered.
  SimServer(Parts parts, StoreMonitor& monitor, int number, SimDatabase* database);
  ~SimServer() override;

  // UNAVAILABLE if it is down. If the server dies first, `on_answer` gets UNAVAILABLE or is never called, as chance has
  // it.
  void Call(std::string_view method, const std::string& authorization, std::shared_ptr<const Message> request,
            std::unique_ptr<Message> response, OnAnswer on_answer);

  void Post(Event event) override;
  void Defer(Deferred deferred) override;

  // Faults from here on.
  void BecomeFaulty();
  // None any more: it is up, and has noticed that the connections it had are gone.
  void Mend();
  // SIGTERM, and a new process some time later.
  void RestartGracefully();
  void FillDisk(absl::Duration duration);
  // It stands still, as under SIGSTOP: what arrives meanwhile is read when it goes on.
  void Pause(absl::Duration duration);
  void CutFromDatabase(absl::Duration duration);
  // The database is this process's, whether or not it can reach it.
  bool Owns() const {
    return life_ != nullptr && (database_ == nullptr || (database_->owner().server == number_ && !has_lost_));
  }
  // The owner of the database, as far as this server has heard, if it waits for its turn.
  std::optional<int> ForwardsTo() const {
    return database_ == nullptr || life_ != nullptr || !listens_ || IsFrozen() ? std::nullopt : seen_owner_;
  }
  bool is_up() const { return life_ != nullptr; }
  absl::Time last_crash() const { return last_crash_; }

  // Once a second: every call must be answered in its time, a server without work must rest, and work must not lie
  // about while workers wait.
  void CheckService();
  // What the store shows, without faults.
  TaskStore& tasks() { return parts_.storage.tasks(); }
  // Between store operations, so far.
  int64_t num_passages() const { return point_.num_passages(); }
  // Calls that wait for their answer.
  size_t num_open_calls() const { return pending_.size(); }
  // What the core keeps although nothing is left to do; empty if nothing.
  std::string Leaks();

 private:
  struct Pending {
    std::string method;
    // The server's, once it was let in.
    CallId in_server;
    absl::Time arrival;
    absl::Time due;
    std::shared_ptr<const Message> request;
    OnAnswer on_answer;
    // Of a Sync.
    int64_t ledger_call = 0;
    // Nobody waits for the answer.
    bool is_abandoned = false;
    // Beats at which it should have been answered already.
    int num_overdue = 0;
  };

  void Start();
  // Of a server that waits for its turn: looks at the database now and then, and takes it when it is free.
  void LookAt(absl::Time time);
  void TakeOver();
  // The core on its store.
  void Live();
  bool IsFrozen() const { return frozen_until_ > parts_.agenda.now(); }
  void Crash(std::string_view why);
  void Stop(absl::Duration downtime);
  // Runs `work` of the present life; a crash inside ends that life.
  void Guard(const std::function<void()>& work);
  void ScheduleBatch(absl::Time time);
  void RunBatch();
  void Arm();
  void EmptyDisk();
  void Abandon(Pending& call);
  // A worker whose connection broke has called again: perhaps the server hears of the break only now.
  void AbandonOlder(int64_t newest);
  // False while it may be busy with something else, or cannot write.
  bool IsWell() const;
  void CheckOnePollPerWorker();
  void CheckWorkMeetsWorkers();
  // What a call waits for has happened.
  bool HasNews(const Pending& call);
  void Answer(int64_t id, const absl::Status& status, const Message& response, absl::Time arrival);

  Parts parts_;
  CrashPoint point_;
  StoreMonitor& monitor_;
  const int number_;
  SimDatabase* const database_;
  // Of this process, as the owner of the database.
  std::unique_ptr<TaskStore> own_store_;
  bool has_lost_ = false;
  std::optional<int> seen_owner_;
  absl::Time frozen_until_ = absl::InfinitePast();
  absl::Time cut_until_ = absl::InfinitePast();
  std::unique_ptr<CrashingTaskStore> task_store_;
  CrashingPayloadStore payload_store_;
  SimBackground background_;
  // One process: all that a crash takes away.
  std::unique_ptr<ServerParts> life_;
  int64_t num_lives_ = 0;
  // Appointments for a start: only the newest is kept.
  int64_t rest_ = 0;
  absl::Time last_crash_ = absl::InfinitePast();
  bool is_faulty_ = false;
  bool is_stopping_ = false;
  bool listens_ = false;
  // Started, and with room on the disk.
  absl::Time well_since_;

  struct Posted {
    Event event;
    absl::Time arrival;
  };
  std::vector<Posted> inbox_;
  // The batch to come, and the number that makes an earlier appointment void.
  absl::Time batch_time_ = absl::InfiniteFuture();
  int64_t batch_ = 0;
  // Batches without an event, since the last beat.
  int64_t num_idle_batches_ = 0;

  int64_t newest_call_ = 0;
  std::map<int64_t, Pending> pending_;
};

}  // namespace sheaf::simulation
