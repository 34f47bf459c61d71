// PostgresCluster: a real PostgreSQL of a test's own (cluster.py), stopped and deleted with the test, whatever becomes
// of it. It takes a second to start, so that one serves all cases of a process, and each case has a database of its
// own.
//
//   PostgresDatabase database;
//   const std::string conninfo = database.conninfo();
//   database.Run("DROP TABLE rounds");      // As its operator, on a connection of its own.
//
//   PostgresCluster cluster;                // Where the case stops it:
//   cluster.Stop("immediate");
//   cluster.Start();
//
// Not thread-safe. Where PostgreSQL is not installed the process ends: what needs it is never skipped.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <string>

struct pg_conn;

namespace sheaf {

class PostgresCluster {
 public:
  PostgresCluster();
  ~PostgresCluster();
  PostgresCluster(const PostgresCluster&) = delete;
  PostgresCluster& operator=(const PostgresCluster&) = delete;

  // Started when it is first asked for.
  static PostgresCluster& OfThisProcess();

  // Over the Unix socket, or over TCP to 127.0.0.1.
  std::string Conninfo(const std::string& database) const;
  std::string TcpConninfo(const std::string& database) const;
  int port() const { return port_; }

  // `mode` is one of pg_ctl's: "smart" waits for clients, "fast" ends them, "immediate" is as good as a crash.
  void Stop(const std::string& mode);
  void Start();

  // From here on a commit is acknowledged when a standby has it as well.
  void AddStandby();
  // kill -9 of the server. Its standby is promoted, and is the server from here on.
  void FailOver();
  // A disk of so many MiB of its own, for what lies in the tablespace "small" or for the write-ahead log. The server is
  // restarted for it. Returns why there is none, in a sentence, where this user may not mount one; then the cluster is
  // good for nothing more.
  std::string MakeSmallDisk(const std::string& place, int mebibytes);
  // Takes all the room that is left there. A full "wal" ends the server.
  void FillDisk();
  // Gives it back, and starts the server if it has ended.
  void FreeDisk();
  // Whichever of both takes writes, over TCP.
  std::string EitherConninfo(const std::string& database) const;

 private:
  std::string ReadLine();
  // The answer to an order, whatever it is.
  std::string Ask(const std::string& order);
  // What is answered behind "ok".
  std::string Order(const std::string& order);

  // The two ends of cluster.py.
  int input_ = -1;
  std::FILE* output_ = nullptr;
  std::string folder_;
  std::string user_;
  int port_ = 0;
  int standby_port_ = 0;
};

class PostgresDatabase {
 public:
  explicit PostgresDatabase(PostgresCluster& cluster = PostgresCluster::OfThisProcess());
  // Ends those who are connected to it.
  ~PostgresDatabase();
  PostgresDatabase(const PostgresDatabase&) = delete;
  PostgresDatabase& operator=(const PostgresDatabase&) = delete;

  const std::string& name() const { return name_; }
  std::string conninfo() const { return cluster_.Conninfo(name_); }
  PostgresCluster& cluster() { return cluster_; }

  // The first value of the answer, as text; empty if there is none.
  std::string Run(const std::string& sql);

 private:
  PostgresCluster& cluster_;
  std::string name_;
};

// A session that somebody has forgotten, or a long report: as long as it is there, the database removes no version of a
// row that was current when it began, nor any later one.
class PostgresSnapshot {
 public:
  explicit PostgresSnapshot(const PostgresDatabase& database);
  ~PostgresSnapshot();
  PostgresSnapshot(const PostgresSnapshot&) = delete;
  PostgresSnapshot& operator=(const PostgresSnapshot&) = delete;

 private:
  pg_conn* const connection_;
};

// An empty database with its schema, for cases that change no schema: to make one takes a second, which cases share by
// leaving theirs, emptied, to the next.
//
//   UsedDatabase used;
//   const std::string workers = used->Run("SELECT count(*) FROM workers");
class UsedDatabase {
 public:
  UsedDatabase();
  // Ends those who are connected to it.
  ~UsedDatabase();
  UsedDatabase(const UsedDatabase&) = delete;
  UsedDatabase& operator=(const UsedDatabase&) = delete;

  PostgresDatabase* operator->() { return database_.get(); }

 private:
  std::unique_ptr<PostgresDatabase> database_;
};

}  // namespace sheaf
