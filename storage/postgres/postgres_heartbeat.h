// PostgresHeartbeat: says that an owner lives, from a thread and a connection of its own, while it has nothing to
// commit.
//
//   {
//     const PostgresHeartbeat heartbeat({.conninfo = "dbname=sheaf"}, owner->tenure(), takeover_after / 5);
//     RETURN_IF_ERROR(Recover());       // Takes as long as it takes.
//   }
//
// Whoever waits for the store waits for as long, unless this process stands still. So it is for work that comes to an
// end by itself; afterwards the owner's commits say that it lives. The connection is made for the first beat, which
// comes after one interval: what is quick costs none. What the database refuses is tried again with the next beat.
#pragma once

#include <thread>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "storage/postgres/postgres_connection.h"
#include "storage/postgres/postgres_owner.h"

namespace sheaf {

class PostgresHeartbeat {
 public:
  PostgresHeartbeat(PostgresConnection::Options database, PostgresOwner::Tenure tenure, absl::Duration interval);
  // Waits for a beat that is on its way.
  ~PostgresHeartbeat();

 private:
  void Run() EXCLUDES(mutex_);
  // False: it is the end.
  bool WaitForNext() EXCLUDES(mutex_);

  const PostgresConnection::Options database_;
  const PostgresOwner::Tenure tenure_;
  const absl::Duration interval_;
  Mutex mutex_;
  CondVar end_;
  bool is_ending_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sheaf
