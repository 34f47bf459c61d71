// Goal: what a test starts is a PostgreSQL as it is deployed, and nothing of it stays behind.
#include "tests/postgres/postgres_cluster.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "tests/wait_until.h"

namespace sheaf {
namespace {

std::string FolderOf(PostgresCluster& cluster) {
  const std::string conninfo = cluster.Conninfo("postgres");
  return conninfo.substr(5, conninfo.find(' ') - 5);
}

TEST_CASE("A cluster of the tests flushes what it commits, and serves a socket and 127.0.0.1") {
  PostgresDatabase database;
  CHECK(database.Run("SHOW fsync") == "on");
  CHECK(database.Run("SHOW synchronous_commit") == "on");
  CHECK(database.Run("SHOW full_page_writes") == "on");
  CHECK(database.Run("SHOW listen_addresses") == "127.0.0.1");
  CHECK(database.Run("SELECT current_setting('server_version_num')::integer / 10000") == "15");
}

TEST_CASE("A cluster that is stopped as by a crash has what was committed when it starts again") {
  PostgresCluster cluster;
  PostgresDatabase database(cluster);
  database.Run("CREATE TABLE t (n bigint); INSERT INTO t VALUES (7)");
  cluster.Stop("immediate");
  cluster.Start();
  CHECK(database.Run("SELECT n FROM t") == "7");
}

TEST_CASE("A cluster goes with its test, also with one that is killed") {
  std::string folder;
  {
    PostgresCluster cluster;
    folder = FolderOf(cluster);
    CHECK(std::filesystem::exists(folder));
  }
  CHECK_FALSE(std::filesystem::exists(folder));

  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    PostgresCluster cluster;
    const std::string said = FolderOf(cluster) + "\n";
    if (::write(ends[1], said.data(), said.size()) < 0) ::_exit(1);
    ::pause();
  }
  ::close(ends[1]);
  folder.clear();
  for (char c = 0; ::read(ends[0], &c, 1) == 1 && c != '\n';) folder.push_back(c);
  ::close(ends[0]);
  CHECK(std::filesystem::exists(folder));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  WaitUntil("the directory is deleted", absl::Seconds(20), [&] { return !std::filesystem::exists(folder); });
}

}  // namespace
}  // namespace sheaf
