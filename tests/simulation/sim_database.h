// SimDatabase: what several simulated servers share. The rows are an SQLite database in memory; who may write them is
// decided as storage/postgres/postgres_owner.h does it. One record names the owner, and has two numbers: `epoch`, which
// grows whenever somebody takes it, and `batch`, which each commit raises by one.
//
//   if (!database.CanTake(2)) return absl::NotFoundError("another server owns it");
//   std::unique_ptr<SimSession> session = database.Take(2);   // What a SqlTaskStore may have for its connection.
//
// A transaction is committed only where both numbers are what its session knows. Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/random.h"
#include "storage/sql/sql_connection.h"
#include "tests/simulation/agenda.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/sim_storage.h"
#include "tests/simulation/statistics.h"

namespace sheaf::simulation {

class SimDatabase;

// The connection of one process of a server, from when it took the database until it ends.
class SimSession final : public SqlConnection {
 public:
  SimSession(SimDatabase& database, int server, int64_t epoch, int64_t batch);

  absl::Status Begin() override;
  absl::Status Commit() override;
  void Rollback() override;
  using SqlConnection::Execute;
  absl::StatusOr<int64_t> Execute(std::string_view sql, std::initializer_list<SqlValue> values,
                                  RowCallback on_row) override;
  absl::Status ExecuteScript(const std::string& sql) override { return inner_->ExecuteScript(sql); }
  std::string name() const override { return "the simulated database"; }

  // Whether the newest transaction is in the database, whatever its server was told.
  bool has_committed() const { return has_committed_; }

 private:
  absl::Status CheckUsable() const;
  // The first thing that a transaction does in the database.
  absl::Status CheckFence();
  absl::Status Lose(std::string_view why);
  // The answer to a COMMIT was lost: true if the batch is there; ABORTED if that cannot be known in time.
  absl::StatusOr<bool> Settle();

  SimDatabase& database_;
  const int server_;
  const std::unique_ptr<SqlConnection> inner_;
  absl::Status status_;
  int64_t epoch_;
  int64_t batch_;
  bool is_in_transaction_ = false;
  bool has_committed_ = false;
};

class SimDatabase {
 public:
  struct Owner {
    // From 0; -1: nobody.
    int server = -1;
    int64_t epoch = 0;
    int64_t batch = 0;
    absl::Time heard = absl::InfinitePast();
  };
  struct Parts {
    Agenda& agenda;
    Journal& journal;
    Statistics& statistics;
    SimStorage& storage;
    // Of the database's own faults.
    Random& chance;
    absl::Duration takeover_after;
    // Of each commit.
    double answer_lost = 0;
  };
  SimDatabase(Parts parts, int num_servers) : parts_(parts), links_(static_cast<size_t>(num_servers)) {}

  // Nobody else owns it who was heard of lately. A server that starts again is its own successor.
  bool CanTake(int server) const;
  // The former owner's next commit fails.
  std::unique_ptr<SimSession> Take(int server);
  // It need not be waited for.
  void Release(int server);
  // As a look at the database shows it; none while nobody is heard of.
  std::optional<int> FindOwner() const;
  const Owner& owner() const { return owner_; }
  absl::Time last_taken() const { return last_taken_; }
  absl::Duration takeover_after() const { return parts_.takeover_after; }

  // The network between a server and the database.
  void Cut(int server, bool is_cut) { links_[static_cast<size_t>(server)] = is_cut; }
  bool is_cut(int server) const { return links_[static_cast<size_t>(server)]; }
  void BecomeCalm() { is_calm_ = true; }
  // Whose code runs at present; -1: the world's own, which sees all there is. Returns who was it before.
  int SetActing(int server) { return std::exchange(acting_, server); }

 private:
  friend class SimSession;

  // What every commit asserts first.
  bool Fence(int64_t epoch, int64_t batch) const { return owner_.epoch == epoch && owner_.batch == batch; }
  void Committed(int server);
  bool IsCutFromActing(int server) const { return acting_ == server && is_cut(server); }

  const Parts parts_;
  std::vector<bool> links_;
  Owner owner_;
  absl::Time last_taken_ = absl::InfinitePast();
  int acting_ = -1;
  bool is_calm_ = false;
};

}  // namespace sheaf::simulation
