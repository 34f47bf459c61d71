#include "tests/simulation/sim_database.h"

#include <fmt/format.h>

#include "base/status_macros.h"

namespace sheaf::simulation {
namespace {

// How often what became of a commit cannot be known in time.
constexpr double kNeverSettled = 0.2;

}  // namespace

// --- Sessions ------------------------------------------------------------------------------------

SimSession::SimSession(SimDatabase& database, int server, int64_t epoch, int64_t batch)
    : database_(database), server_(server), inner_(database.parts_.storage.Connect()), epoch_(epoch), batch_(batch) {}

absl::Status SimSession::CheckUsable() const {
  if (database_.IsCutFromActing(server_)) return absl::UnavailableError("the database does not answer");
  return status_;
}

absl::Status SimSession::Lose(std::string_view why) {
  if (status_.ok()) status_ = absl::AbortedError(fmt::format("server {}: {}", server_, why));
  return status_;
}

absl::Status SimSession::Begin() {
  RETURN_IF_ERROR(CheckUsable());
  RETURN_IF_ERROR(inner_->Begin());
  has_committed_ = false;
  is_in_transaction_ = true;
  return absl::OkStatus();
}

absl::Status SimSession::CheckFence() {
  RETURN_IF_ERROR(CheckUsable());
  if (database_.Fence(epoch_, batch_)) return absl::OkStatus();
  ++database_.parts_.statistics.shared["commits fenced"];
  return Lose("another server has taken over");
}

absl::Status SimSession::Commit() {
  is_in_transaction_ = false;
  if (absl::Status status = CheckFence(); !status.ok()) {
    inner_->Rollback();
    return status;
  }
  const bool is_answer_lost = !database_.is_calm_ && database_.parts_.chance.Chance(database_.parts_.answer_lost);
  if (is_answer_lost && database_.parts_.chance.Chance(0.5)) {
    inner_->Rollback();
  } else {
    RETURN_IF_ERROR(inner_->Commit());
    has_committed_ = true;
    database_.Committed(server_);
  }
  if (!is_answer_lost) {
    ++batch_;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool is_committed, Settle());
  return is_committed ? absl::OkStatus() : absl::UnavailableError("the connection broke in a commit");
}

absl::StatusOr<bool> SimSession::Settle() {
  Statistics& statistics = database_.parts_.statistics;
  if (database_.parts_.chance.Chance(kNeverSettled)) {
    ++statistics.shared["unknown commits given up"];
    return Lose("what became of a commit is not known");
  }
  // The row is taken again for the new connection: whatever the old one still sends comes too late.
  epoch_ = ++database_.owner_.epoch;
  const bool is_committed = database_.owner_.batch > batch_;
  ++statistics.shared[is_committed ? "unknown commits that had happened" : "unknown commits that had not"];
  batch_ = database_.owner_.batch;
  return is_committed;
}

void SimSession::Rollback() {
  is_in_transaction_ = false;
  inner_->Rollback();
}

absl::StatusOr<int64_t> SimSession::Execute(std::string_view sql, std::initializer_list<SqlValue> values,
                                            RowCallback on_row) {
  RETURN_IF_ERROR(is_in_transaction_ ? CheckFence() : CheckUsable());
  return inner_->Execute(sql, values, on_row);
}

// --- Owners --------------------------------------------------------------------------------------

bool SimDatabase::CanTake(int server) const {
  return owner_.server == server || owner_.heard + parts_.takeover_after <= parts_.agenda.now();
}

std::unique_ptr<SimSession> SimDatabase::Take(int server) {
  if (owner_.server >= 0 && owner_.server != server) ++parts_.statistics.shared["takeovers"];
  ++owner_.epoch;
  owner_.server = server;
  owner_.heard = last_taken_ = parts_.agenda.now();
  return std::make_unique<SimSession>(*this, server, owner_.epoch, owner_.batch);
}

void SimDatabase::Release(int server) {
  if (owner_.server != server || is_cut(server)) return;
  ++parts_.statistics.shared["databases given back"];
  ++owner_.epoch;
  owner_.heard = absl::InfinitePast();
}

std::optional<int> SimDatabase::FindOwner() const {
  if (owner_.server < 0 || owner_.heard + parts_.takeover_after <= parts_.agenda.now()) return std::nullopt;
  return owner_.server;
}

void SimDatabase::Committed(int server) {
  if (server != owner_.server) {
    parts_.journal.Break("who has lost the database changes nothing", "server {} commits, and server {} owns it",
                         server, owner_.server);
  }
  ++owner_.batch;
  owner_.heard = parts_.agenda.now();
}

}  // namespace sheaf::simulation
