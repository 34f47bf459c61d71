// The place of a row in PostgreSQL (storage/sql/row_place.h), as statements and answers have it.
//
//   values.Add(BeginOf(place)).Add(EndOf(place));   // ... WHERE ctid >= $1 AND ctid < $2: nowhere, if it is not known.
//   place = PlaceOf(row, 1);                        // ... RETURNING key, ctid
#pragma once

#include <cstdint>

#include "storage/postgres/postgres_values.h"
#include "storage/sql/row_place.h"
#include "storage/sql/sql_connection.h"

namespace sheaf {

inline PostgresPage BeginOf(RowPlace place) { return {place.page.value_or(0)}; }
inline PostgresPage EndOf(RowPlace place) { return {place.page ? *place.page + 1 : 0}; }

// Of a tid, whose last two bytes say which row of the page it is.
inline RowPlace PlaceOf(const SqlRow& row, int column) {
  return {.page = static_cast<uint32_t>(static_cast<uint64_t>(row.Int(column)) >> 16)};
}

}  // namespace sheaf
