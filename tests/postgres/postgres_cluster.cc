#include "tests/postgres/postgres_cluster.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <libpq-fe.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "base/check.h"

namespace sheaf {
namespace {

PGconn* Connect(const std::string& conninfo) {
  PGconn* const connection = PQconnectdb(conninfo.c_str());
  SHEAF_CHECK(PQstatus(connection) == CONNECTION_OK, "{}", PQerrorMessage(connection));
  PQsetNoticeProcessor(
      connection, [](void*, const char*) {}, nullptr);
  return connection;
}

std::string RunOn(PGconn* connection, const std::string& sql) {
  const std::unique_ptr<PGresult, void (*)(PGresult*)> result(PQexec(connection, sql.c_str()), PQclear);
  const ExecStatusType status = PQresultStatus(result.get());
  SHEAF_CHECK(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK, "{}: {}", sql, PQerrorMessage(connection));
  return PQntuples(result.get()) > 0 ? PQgetvalue(result.get(), 0, 0) : "";
}

std::string RunOn(const std::string& conninfo, const std::string& sql) {
  const std::unique_ptr<PGconn, void (*)(PGconn*)> connection(Connect(conninfo), PQfinish);
  return RunOn(connection.get(), sql);
}

}  // namespace

PostgresCluster::PostgresCluster() {
  int input[2];
  int output[2];
  // Not inherited: a child that outlives this process must not keep the cluster alive.
  SHEAF_CHECK(::pipe2(input, O_CLOEXEC) == 0 && ::pipe2(output, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  std::string words[] = {SHEAF_PYTHON, "-B", SHEAF_CLUSTER};
  char* const arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t pid = 0;
  SHEAF_CHECK(::posix_spawn(&pid, SHEAF_PYTHON, &actions, nullptr, arguments, environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(input[0]);
  ::close(output[1]);
  ::waitpid(pid, nullptr, 0);  // It leaves the cluster to a process that is nobody's child.
  input_ = input[1];
  output_ = ::fdopen(output[0], "r");
  const std::string where = ReadLine();
  std::istringstream(where) >> folder_ >> port_ >> user_;
  SHEAF_CHECK(!user_.empty() && port_ > 0, "PostgreSQL did not start; deploy/install-packages.sh test brings it. {}",
              where);
}

PostgresCluster::~PostgresCluster() {
  ::close(input_);
  // Until it is gone.
  while (!ReadLine().empty()) continue;
  std::fclose(output_);
}

PostgresCluster& PostgresCluster::OfThisProcess() {
  static PostgresCluster cluster;
  return cluster;
}

std::string PostgresCluster::ReadLine() {
  std::string line;
  for (int c = std::fgetc(output_); c != EOF && c != '\n'; c = std::fgetc(output_))
    line.push_back(static_cast<char>(c));
  return line;
}

std::string PostgresCluster::Ask(const std::string& order) {
  const std::string line = order + "\n";
  SHEAF_CHECK(::write(input_, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  return ReadLine();
}

std::string PostgresCluster::Order(const std::string& order) {
  const std::string answer = Ask(order);
  SHEAF_CHECK(answer.starts_with("ok"), "{}: {}", order, answer);
  return answer.substr(2);
}

void PostgresCluster::Stop(const std::string& mode) { Order("stop " + mode); }
void PostgresCluster::Start() { Order("start"); }

void PostgresCluster::AddStandby() { standby_port_ = std::stoi(Order("standby")); }

void PostgresCluster::FailOver() {
  Order("failover");
  std::swap(port_, standby_port_);
}

std::string PostgresCluster::MakeSmallDisk(const std::string& place, int mebibytes) {
  std::string answer = Ask(fmt::format("small {} {}", place, mebibytes));
  SHEAF_CHECK(answer == "ok" || answer.starts_with("this user may not mount"), "{}", answer);
  return answer == "ok" ? "" : answer;
}
void PostgresCluster::FillDisk() { Order("fill"); }
void PostgresCluster::FreeDisk() { Order("free"); }

std::string PostgresCluster::EitherConninfo(const std::string& database) const {
  return fmt::format("postgresql://{}@127.0.0.1:{},127.0.0.1:{}/{}?target_session_attrs=read-write", user_, port_,
                     standby_port_, database);
}

std::string PostgresCluster::Conninfo(const std::string& database) const {
  return fmt::format("host={} port={} user={} dbname={}", folder_, port_, user_, database);
}

std::string PostgresCluster::TcpConninfo(const std::string& database) const {
  return fmt::format("postgresql://{}@127.0.0.1:{}/{}", user_, port_, database);
}

PostgresDatabase::PostgresDatabase(PostgresCluster& cluster) : cluster_(cluster) {
  static int num_databases = 0;
  name_ = fmt::format("test_{}", ++num_databases);
  RunOn(cluster_.Conninfo("postgres"), "CREATE DATABASE " + name_);
}

PostgresDatabase::~PostgresDatabase() {
  RunOn(cluster_.Conninfo("postgres"), fmt::format("DROP DATABASE {} WITH (FORCE)", name_));
}

std::string PostgresDatabase::Run(const std::string& sql) { return RunOn(conninfo(), sql); }

PostgresSnapshot::PostgresSnapshot(const PostgresDatabase& database) : connection_(Connect(database.conninfo())) {
  RunOn(connection_, "BEGIN ISOLATION LEVEL REPEATABLE READ");
  // Only what reads has a snapshot.
  RunOn(connection_, "SELECT 1");
}

PostgresSnapshot::~PostgresSnapshot() { PQfinish(connection_); }

namespace {

// Some hundred rows in each table.
constexpr int64_t kUsedBytesMax = 512 << 10;

// Of cases that have ended. They go before the cluster, which is older.
std::vector<std::unique_ptr<PostgresDatabase>>& UsedDatabases() {
  PostgresCluster::OfThisProcess();
  static std::vector<std::unique_ptr<PostgresDatabase>> databases;
  return databases;
}

}  // namespace

UsedDatabase::UsedDatabase() {
  std::vector<std::unique_ptr<PostgresDatabase>>& used = UsedDatabases();
  if (used.empty()) {
    database_ = std::make_unique<PostgresDatabase>();
    return;
  }
  database_ = std::move(used.back());
  used.pop_back();
}

UsedDatabase::~UsedDatabase() {
  database_->Run(
      "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity\n"
      "WHERE datname = current_database() AND pid <> pg_backend_pid()");
  // One that has grown keeps its pages, and whoever measures would see them.
  const std::string size = database_->Run(
      "SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE relname IN (SELECT tablename FROM pg_tables WHERE "
      "schemaname = 'public')");
  if (std::stoll(size) > kUsedBytesMax) return;
  // What versions it has is kept. A deletion is a hundred times cheaper than TRUNCATE, which makes new files.
  database_->Run(
      "DO $$ DECLARE name text; BEGIN\n"
      "FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'schema' LOOP\n"
      "  EXECUTE format('DELETE FROM %I', name);\n"
      "END LOOP; END $$");
  UsedDatabases().push_back(std::move(database_));
}

}  // namespace sheaf
