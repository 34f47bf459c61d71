#include "bench/postgres_servers.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/status_macros.h"

namespace sheaf::bench {

void SetUsual(PostgresCluster& cluster) {
  PostgresDatabase database(cluster);
  for (const std::string setting :
       {"max_connections = 100", "shared_buffers = '128MB'", "autovacuum_naptime = '1min'"}) {
    database.Run("ALTER SYSTEM SET " + setting);
  }
  cluster.Stop("fast");
  cluster.Start();
}

pid_t PostmasterOf(PostgresCluster& cluster) {
  PostgresDatabase database(cluster);
  return std::stoi(database.Run("SELECT pg_read_file('postmaster.pid', 0, 20)"));
}

absl::StatusOr<std::unique_ptr<PostgresServers>> PostgresServers::Start(const Setup& setup, PostgresCluster& cluster,
                                                                        int count,
                                                                        const std::vector<std::string>& options) {
  std::unique_ptr<PostgresServers> servers(new PostgresServers(cluster));
  for (int i = 0; i < count; ++i) {
    const std::string directory = fmt::format("{}/server-{}", setup.directory, i);
    std::filesystem::remove_all(directory);
    std::vector<std::string> words = {
        setup.sheafd, "--listen", "127.0.0.1:0", "--data-dir", directory, "--store", servers->database_.conninfo()};
    words.insert(words.end(), options.begin(), options.end());
    ASSIGN_OR_RETURN(servers->processes_.emplace_back(),
                     ChildProcess::Start({.words = words, .variables = {}, .cpu = std::nullopt}));
  }
  return servers;
}

std::vector<const ChildProcess*> PostgresServers::all() const {
  std::vector<const ChildProcess*> all;
  for (const auto& process : processes_) all.push_back(process.get());
  return all;
}

}  // namespace sheaf::bench
