#include "storage/postgres/postgres_heartbeat.h"

#include <memory>
#include <utility>

#include "base/log.h"

namespace sheaf {

PostgresHeartbeat::PostgresHeartbeat(PostgresConnection::Options database, PostgresOwner::Tenure tenure,
                                     absl::Duration interval)
    : database_(std::move(database)), tenure_(std::move(tenure)), interval_(interval), thread_([this] { Run(); }) {}

PostgresHeartbeat::~PostgresHeartbeat() {
  {
    MutexLock lock(mutex_);
    is_ending_ = true;
    end_.NotifyOne();
  }
  thread_.join();
}

void PostgresHeartbeat::Run() {
  std::unique_ptr<PostgresConnection> connection;
  while (WaitForNext()) {
    absl::Status beaten;
    if (connection == nullptr) {
      absl::StatusOr<std::unique_ptr<PostgresConnection>> opened = PostgresConnection::Open(database_);
      beaten = opened.status();
      if (opened.ok()) connection = *std::move(opened);
    } else if (!connection->is_connected()) {
      beaten = connection->Connect();
    }
    if (beaten.ok()) beaten = connection->Run(tenure_.Beat());
    if (!beaten.ok()) LogWarning("the database does not hear that this server lives: {}", beaten.ToString());
  }
}

bool PostgresHeartbeat::WaitForNext() {
  MutexLock lock(mutex_);
  if (!is_ending_) end_.WaitFor(mutex_, interval_);
  return !is_ending_;
}

}  // namespace sheaf
