// PostgresServers: sheafd processes that share a database of their own, on a PostgreSQL with the settings of its
// package.
//
//   PostgresCluster cluster;
//   SetUsual(cluster);
//   ASSIGN_OR_RETURN(auto servers, PostgresServers::Start(setup, cluster, 3));
//   ASSIGN_OR_RETURN(LoopResult result, RunSyncLoop(setup, servers->all(), load, {}));
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/bench.h"
#include "tests/postgres/postgres_cluster.h"

namespace sheaf::bench {

// A cluster of tests saves memory. From here on it is as PostgreSQL is installed; it is started again for that.
void SetUsual(PostgresCluster& cluster);

// The process that starts all others of the database.
pid_t PostmasterOf(PostgresCluster& cluster);

class PostgresServers {
 public:
  // Each on a new data directory; `options` are added to what sheafd is told. The first owns the store.
  static absl::StatusOr<std::unique_ptr<PostgresServers>> Start(const Setup& setup, PostgresCluster& cluster, int count,
                                                                const std::vector<std::string>& options = {});
  // The servers end before their database goes.
  ~PostgresServers() { processes_.clear(); }

  PostgresDatabase& database() { return database_; }
  const ChildProcess& owner() const { return *processes_.front(); }
  const ChildProcess& other() const { return *processes_.back(); }
  std::vector<const ChildProcess*> all() const;

 private:
  explicit PostgresServers(PostgresCluster& cluster) : database_(cluster) {}

  PostgresDatabase database_;
  std::vector<std::unique_ptr<ChildProcess>> processes_;
};

}  // namespace sheaf::bench
