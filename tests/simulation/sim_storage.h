// SimStorage: the disk of the simulated server. It outlives the server's crashes; what no flush covered does not.
#pragma once

#include <memory>

#include "base/clock.h"
#include "storage/memory/memory_payload_store.h"
#include "storage/sql/sql_connection.h"
#include "storage/task_store.h"

namespace sheaf::simulation {

enum class StoreKind { kMemory, kSqlite };

class SimStorage {
 public:
  // `clock` outlives this.
  explicit SimStorage(StoreKind kind);

  // The power fails: no batch may be open. Stores are opened anew, as a restarted process opens them.
  void Crash();

  // Another view of the same rows; SQLite's only.
  std::unique_ptr<SqlConnection> Connect() const;
  // `tasks` is this store from here on, which lives until Reopen; or one that is opened anew.
  void Show(TaskStore& store) { shown_ = &store; }
  void Reopen();

  TaskStore& tasks() { return *shown_; }
  MemoryPayloadStore& payloads() { return payloads_; }

 private:
  void OpenSqlite();

  // SQLite in memory, which lives as long as its connection; each life of the server gets a view of it.
  std::shared_ptr<SqlConnection> database_;
  std::unique_ptr<TaskStore> tasks_;
  TaskStore* shown_ = nullptr;
  MemoryPayloadStore payloads_;
};

}  // namespace sheaf::simulation
