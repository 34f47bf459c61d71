#include "storage/postgres/postgres_task_store.h"

#include <span>

#include "base/status_macros.h"
#include "storage/postgres/postgres_engine.h"
#include "storage/postgres/unfinished_copy.h"
#include "storage/postgres/warm_up.h"
#include "storage/sql/sql_task_store.h"

namespace sheaf {
namespace {

// Of a migration: whoever waited for the owner's row meanwhile has it at the COMMIT, and sees when it was heard of.
class LateBeat final : public BatchPart {
 public:
  explicit LateBeat(PostgresEngine& engine) : engine_(engine) { engine_.session().Join(*this); }
  ~LateBeat() override { engine_.session().Leave(); }
  void QueueInto(OwnedSession& /*session*/) override { engine_.postgres().Queue(engine_.owner().LateBeat()); }
  void Ended() override {}

 private:
  PostgresEngine& engine_;
};

absl::Status MigrateAsOwner(PostgresEngine& engine, std::span<const Migration> migrations) {
  // As a rule: then whoever waits to be served is spared some round trips, and a flush.
  ASSIGN_OR_RETURN(const bool is_migrated, IsMigrated(engine.session(), migrations));
  if (is_migrated) return absl::OkStatus();
  RETURN_IF_ERROR(engine.owner().BeginLongWork());
  absl::Status status;
  {
    const LateBeat beat(engine);
    status = Migrate(engine.session(), migrations);
  }
  RETURN_IF_ERROR(status);
  return engine.owner().EndLongWork();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PostgresTaskStore>> PostgresTaskStore::Open(const Options& options) {
  ASSIGN_OR_RETURN(auto connection, PostgresConnection::Open(options.connection));
  RETURN_IF_ERROR(MakePostgresSchema(*connection, options.migrations));
  // Before it waits for anybody, and of one that has begun meanwhile.
  RETURN_IF_ERROR(CheckNoUnfinishedCopy(*connection));
  PostgresOwner::Options as = options.owner;
  if (as.wait) {
    as.wait = [&options, &connection, warm_pid = 0](const PostgresOwner::Waiting& waiting) mutable {
      // There is time now. What goes wrong shows at the next look.
      if (absl::IsNotFound(waiting.why) && connection->backend_pid() != warm_pid) {
        warm_pid = connection->backend_pid();
        WarmUp(*connection).IgnoreError();
      }
      return options.owner.wait(waiting);
    };
  }
  ASSIGN_OR_RETURN(auto owner, PostgresOwner::Take(*connection, as));
  RETURN_IF_ERROR(CheckNoUnfinishedCopy(*connection));
  auto engine = std::make_unique<PostgresEngine>(std::move(connection), std::move(owner));
  PostgresEngine& shared = *engine;
  if (const absl::Status status = MigrateAsOwner(shared, options.migrations); !status.ok()) {
    // A newer server may have been here while this one waited: let such a one go on.
    shared.owner().Release().IgnoreError();
    return status;
  }
  if (options.taken) options.taken(shared.owner().tenure());
  ASSIGN_OR_RETURN(std::unique_ptr<TaskStore> tasks, SqlTaskStore::Open(std::move(engine)));
  return std::unique_ptr<PostgresTaskStore>(new PostgresTaskStore(shared, std::move(tasks)));
}

PostgresConnection& PostgresTaskStore::connection() { return engine_.postgres(); }

OwnedSession& PostgresTaskStore::session() { return engine_.session(); }

absl::Status PostgresTaskStore::Release() { return engine_.owner().Release(); }

}  // namespace sheaf
