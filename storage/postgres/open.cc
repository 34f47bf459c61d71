#include "storage/postgres/open.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/status_macros.h"
#include "base/version.h"

namespace sheaf {
namespace {

constexpr int64_t kNameBytesMax = 64;

// Of this directory's server, the same after a restart.
absl::StatusOr<std::string> NameOf(FileSystem& files, const std::string& directory, Random& random) {
  const std::string path = directory + "/SERVER";
  absl::StatusOr<std::unique_ptr<File>> file = files.Open(path, FileSystem::kRead);
  if (file.ok()) {
    ASSIGN_OR_RETURN(std::string name, (*file)->ReadAt(0, kNameBytesMax));
    while (!name.empty() && name.back() == '\n') name.pop_back();
    if (!name.empty()) return name;
    // A crash while it was written.
  } else if (!absl::IsNotFound(file.status())) {
    return file.status();
  }
  std::string name = "server-" + random.Token(16);
  ASSIGN_OR_RETURN(const std::unique_ptr<File> created, files.Open(path, FileSystem::kCreate));
  RETURN_IF_ERROR(created->WriteAt(0, name + "\n"));
  RETURN_IF_ERROR(created->Sync());
  RETURN_IF_ERROR(files.SyncDirectory(directory));
  return name;
}

}  // namespace

absl::StatusOr<std::string> NameOfServer(const std::string& directory, Random& random) {
  PosixFileSystem files;
  return NameOf(files, directory, random);
}

absl::StatusOr<PostgresStore> OpenPostgresStore(const PostgresStoreOptions& options, Random& random) {
  PostgresStore store;
  store.files = std::make_unique<PosixFileSystem>();
  RETURN_IF_ERROR(store.files->CreateDirectory(options.directory));
  if (options.schema.empty()) {
    ASSIGN_OR_RETURN(store.lock, DirectoryLock::Take(options.directory));
  }
  if (store.files->GetStat(options.directory + "/tasks.db").ok()) {
    return absl::FailedPreconditionError(
        fmt::format("{} is a server's store of its own; give another --data-dir to a server that stores in a database",
                    options.directory));
  }
  std::string name = options.server;
  if (name.empty()) {
    ASSIGN_OR_RETURN(name, NameOf(*store.files, options.directory, random));
  }
  const PostgresConnection::Options connection = {.conninfo = options.conninfo, .schema = options.schema};
  ASSIGN_OR_RETURN(store.payloads, PostgresPayloadStore::Open(connection, *store.files,
                                                              {.directory = options.directory + "/fetched",
                                                               .connections_max = options.connections_max}));
  PostgresOwner::Options owner = {.server = name,
                                  .version = kVersion,
                                  .address = options.address,
                                  .peer = options.peer,
                                  .takeover_after = options.takeover_after,
                                  .may_take = options.may_take,
                                  .up_for = options.up_for};
  if (options.wait) {
    owner.wait = [&, is_warm = false](const PostgresOwner::Waiting& waiting) mutable {
      // Once: what keeps the database from it does so for longer than until the next look.
      if (absl::IsNotFound(waiting.why) && !std::exchange(is_warm, true)) store.payloads->WarmUp().IgnoreError();
      return options.wait(waiting);
    };
  }
  ASSIGN_OR_RETURN(store.tasks, PostgresTaskStore::Open(
                                    {.connection = connection, .owner = std::move(owner), .taken = options.taken}));
  store.payloads->JoinBatches(store.tasks->session());
  return store;
}

absl::StatusOr<std::shared_ptr<PostgresPayloadStore>> OpenWaitingPayloads(const PostgresConnection::Options& database,
                                                                          const std::string& directory,
                                                                          int connections_max) {
  struct Payloads {
    explicit Payloads(std::string its_directory) : directory(std::move(its_directory)) { DeleteFiles(); }
    ~Payloads() { DeleteFiles(); }
    void DeleteFiles() const {
      std::error_code error;
      std::filesystem::remove_all(directory, error);
    }

    const std::string directory;
    PosixFileSystem files;
    std::unique_ptr<PostgresPayloadStore> store;
  };
  RETURN_IF_ERROR(PosixFileSystem().CreateDirectory(directory));
  const auto payloads = std::make_shared<Payloads>(directory + "/fetched-while-waiting");
  ASSIGN_OR_RETURN(payloads->store,
                   PostgresPayloadStore::Open(database, payloads->files,
                                              {.directory = payloads->directory, .connections_max = connections_max}));
  return std::shared_ptr<PostgresPayloadStore>(payloads, payloads->store.get());
}

}  // namespace sheaf
