#include "storage/directory/inspect.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <system_error>

#include "base/status_macros.h"
#include "storage/directory/database_copy.h"
#include "storage/directory/open.h"
#include "storage/sql/state_names.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

absl::StatusOr<int64_t> ReadNumber(SqlConnection& connection, const std::string& sql) {
  int64_t number = 0;
  RETURN_IF_ERROR(connection.Execute(sql, {}, [&](const SqlRow& row) { number = row.Int(0); }).status());
  return number;
}

absl::Status CountTables(SqlConnection& connection, StoreSummary& summary) {
  RETURN_IF_ERROR(connection
                      .Execute(R"(-- table_sizes
      SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name
       WHERE m.tbl_name NOT LIKE 'sqlite_%' GROUP BY m.tbl_name ORDER BY m.tbl_name)",
                               {},
                               [&](const SqlRow& row) {
                                 summary.tables.push_back({.name = row.String(0), .num_bytes = row.Int(1)});
                               })
                      .status());
  for (StoreSummary::Table& table : summary.tables) {
    // A name of our own schema.
    ASSIGN_OR_RETURN(table.num_rows,
                     ReadNumber(connection, fmt::format("-- count_rows\nSELECT count(*) FROM {}", table.name)));
  }
  return absl::OkStatus();
}

template <typename State>
absl::StatusOr<std::vector<StoreSummary::Count>> CountStates(SqlConnection& connection, std::string_view sql) {
  std::map<int64_t, int64_t> numbers;
  RETURN_IF_ERROR(connection.Execute(sql, {}, [&](const SqlRow& row) { numbers[row.Int(0)] = row.Int(1); }).status());
  std::vector<StoreSummary::Count> counts;
  for (int64_t state = 1; state <= 6; ++state) {
    counts.push_back({.state = std::string(Name(static_cast<State>(state))), .number = numbers[state]});
  }
  return counts;
}

StoreSummary::Files CountFiles(const std::string& directory, const std::string& kind) {
  StoreSummary::Files files{.kind = kind};
  std::error_code error;
  // A server that runs may add some meanwhile.
  for (std::filesystem::recursive_directory_iterator entry(directory + "/" + kind, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    if (!entry->is_regular_file(gone)) continue;
    const auto size = static_cast<int64_t>(entry->file_size(gone));
    if (gone) continue;
    ++files.num_files;
    files.num_bytes += size;
  }
  return files;
}

}  // namespace

absl::StatusOr<StoreSummary> InspectStore(const std::string& directory, const std::string& scratch) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StoreHold> hold, StoreHold::Take(directory));
  ASSIGN_OR_RETURN(const DatabaseCopy copy, CopyDatabase(*hold, directory, scratch + "/tasks.db", CopyUse::kLook));
  SqlConnection& connection = *copy.connection;
  StoreSummary summary{.holder = DirectoryLock::HolderOf(directory),
                       .schema_version = copy.schema_version,
                       .newest_version = copy.newest_version,
                       .database_bytes = copy.database_bytes,
                       .log_bytes = copy.log_bytes};
  ASSIGN_OR_RETURN(summary.num_free_pages, ReadNumber(connection, "-- free_pages\nPRAGMA freelist_count"));
  ASSIGN_OR_RETURN(summary.page_bytes, ReadNumber(connection, "-- page_size\nPRAGMA page_size"));
  RETURN_IF_ERROR(CountTables(connection, summary));
  for (const char* kind : {"blobs", "spools", "checkpoints", "uploads"}) {
    summary.files.push_back(CountFiles(directory, kind));
  }
  ASSIGN_OR_RETURN(
      summary.rounds,
      CountStates<RoundState>(connection, "-- count_rounds\nSELECT state, count(*) FROM rounds GROUP BY state"));
  ASSIGN_OR_RETURN(summary.tasks,
                   CountStates<TaskState>(
                       connection, fmt::format("-- count_tasks\nSELECT {}, count(*) FROM tasks t LEFT JOIN rounds "
                                               "r ON r.round_key = t.round_key GROUP BY 1",
                                               kTaskState)));
  RETURN_IF_ERROR(connection
                      .Execute("-- round_times\nSELECT min(create_time), max(create_time) FROM rounds", {},
                               [&](const SqlRow& row) {
                                 if (row.IsNull(0)) return;
                                 summary.oldest_round_time = row.Time(0);
                                 summary.newest_round_time = row.Time(1);
                               })
                      .status());
  return summary;
}

}  // namespace sheaf
