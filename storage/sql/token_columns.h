// The columns of a token in SQL, in the order of every SELECT of them, and their reader. Populations are rows of their
// own.
//
//   SELECT id, request_id, name, hash, certificate, roles, creator, create_time, expire_time, revoke_time FROM tokens
#pragma once

#include "storage/records.h"
#include "storage/sql/sql_connection.h"

namespace sheaf {

TokenRecord ReadToken(const SqlRow& row);

}  // namespace sheaf
