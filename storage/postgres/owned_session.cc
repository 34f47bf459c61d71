#include "storage/postgres/owned_session.h"

#include "base/status_macros.h"

namespace sheaf {

absl::Status OwnedSession::Told(absl::Status status) {
  owner_.Failed(status);
  return owner_.status().ok() ? status : owner_.status();
}

absl::Status OwnedSession::CheckConnected() {
  RETURN_IF_ERROR(owner_.status());
  if (connection_.is_connected() || is_in_transaction_) return absl::OkStatus();
  return owner_.Reconnect();
}

absl::Status OwnedSession::Begin() {
  RETURN_IF_ERROR(CheckConnected());
  RETURN_IF_ERROR(session_.Begin());
  is_in_transaction_ = true;
  return absl::OkStatus();
}

absl::Status OwnedSession::Commit() {
  if (part_ != nullptr) part_->QueueInto(*this);
  absl::Status status = CommitAll();
  if (part_ != nullptr) part_->Ended();
  return status;
}

absl::Status OwnedSession::CommitAll() {
  is_in_transaction_ = false;
  const bool was_connected = connection_.is_connected();
  absl::Status status = session_.Commit();
  if (status.ok()) {
    owner_.Committed();
    return status;
  }
  // While the connection stands, the database has said that nothing was committed; and one that was broken before
  // cannot have carried a COMMIT.
  if (connection_.is_connected() || !was_connected) return Told(std::move(status));
  ASSIGN_OR_RETURN(const bool is_committed, owner_.Settle());
  if (!is_committed) return status;
  owner_.Committed();
  return absl::OkStatus();
}

void OwnedSession::Rollback() {
  is_in_transaction_ = false;
  session_.Rollback();
  if (part_ != nullptr) part_->Ended();
}

absl::StatusOr<int64_t> OwnedSession::Execute(std::string_view sql, std::initializer_list<SqlValue> values,
                                              RowCallback on_row) {
  RETURN_IF_ERROR(CheckConnected());
  absl::StatusOr<int64_t> answer = session_.Execute(sql, values, on_row);
  if (!answer.ok()) return Told(answer.status());
  return answer;
}

absl::Status OwnedSession::Ask(PostgresConnection::Statement statement) {
  RETURN_IF_ERROR(CheckConnected());
  session_.BeginsNow();
  return Told(connection_.Run(std::move(statement)));
}

}  // namespace sheaf
