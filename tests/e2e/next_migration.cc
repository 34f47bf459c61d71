// Of a sheafd that is one version newer than this one: its schema has one step more. The linker gives it for the
// product's list to whoever asks for that (--wrap, see CMakeLists.txt); nothing of the product knows of it.
#include <span>
#include <vector>

#include "storage/postgres/postgres_migrations.h"

namespace sheaf {

std::span<const Migration> ReleasedMigrations() asm("__real__ZN5sheaf18PostgresMigrationsEv");
std::span<const Migration> NextMigrations() asm("__wrap__ZN5sheaf18PostgresMigrationsEv");

std::span<const Migration> NextMigrations() {
  static const std::vector<Migration> migrations = [] {
    const std::span<const Migration> released = ReleasedMigrations();
    std::vector<Migration> all(released.begin(), released.end());
    const int next = all.back().version + 1;
    // It rewrites what the rounds under way are in, and takes longer than a silent owner is waited for.
    all.push_back({.version = next,
                   .minimum_compatible_version = next,
                   .name = "next",
                   .sql = "ALTER TABLE rounds ADD COLUMN upgraded_from bigint;\n"
                          "UPDATE rounds SET upgraded_from = version;\n"
                          "ALTER TABLE rounds ALTER COLUMN upgraded_from SET NOT NULL, ALTER COLUMN upgraded_from SET "
                          "DEFAULT 0;\n"
                          "ALTER TABLE tasks ADD COLUMN upgraded_from bigint NOT NULL DEFAULT 0;\n"
                          "SELECT pg_sleep(2)"});
    return all;
  }();
  return migrations;
}

}  // namespace sheaf
