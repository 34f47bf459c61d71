#include "storage/postgres/warm_up.h"

#include <string>

#include "base/status_macros.h"

namespace sheaf {

absl::Status WarmUp(PostgresConnection& connection) {
  std::string looks;
  RETURN_IF_ERROR(connection.Run({.sql = R"(-- list_tables
      SELECT format('SELECT FROM %I LIMIT 0;', tablename) FROM pg_tables
       WHERE schemaname = current_schema() AND has_table_privilege(quote_ident(tablename), 'SELECT'))",
                                  .on_row = [&looks](const SqlRow& row) { looks += row.Bytes(0); }}));
  return connection.RunScript(looks);
}

}  // namespace sheaf
