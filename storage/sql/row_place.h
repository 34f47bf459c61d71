// RowPlace: where a far engine's database said that it has put a row, for who writes the same row again and again.
//
//   RowPlace place;                              // Not known.
//   const SqlEngine::WorkerRow rows[] = {{.record = &worker, .is_stored = true, .place = &place}};
//   RETURN_IF_ERROR(engine.PutWorkers(rows));    // Known once that was answered.
//
// It is a hint, which no answer rests on: whoever follows it looks for the row there, and by its key otherwise. It
// saves passing the row's old versions, of which there are very many while somebody keeps the database from removing
// any (docs/adr/0045).
#pragma once

#include <cstdint>
#include <optional>

namespace sheaf {

struct RowPlace {
  std::optional<uint32_t> page;
};

}  // namespace sheaf
