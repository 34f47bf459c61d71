// RETURN_IF_ERROR(expr);                    returns the status of `expr` unless it is OK.
// ASSIGN_OR_RETURN(auto x, StatusOrExpr());  unwraps, or returns the status.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expr)                                    \
  do {                                                           \
    if (::absl::Status _status = (expr); !_status.ok()) [[unlikely]] \
      return _status;                                            \
  } while (false)

#define SHEAF_CONCAT_INNER(a, b) a##b
#define SHEAF_CONCAT(a, b) SHEAF_CONCAT_INNER(a, b)

#define ASSIGN_OR_RETURN(declaration, expr) \
  SHEAF_ASSIGN_OR_RETURN(SHEAF_CONCAT(_status_or_, __LINE__), declaration, expr)

#define SHEAF_ASSIGN_OR_RETURN(status_or, declaration, expr) \
  auto status_or = (expr);                                   \
  if (!status_or.ok()) [[unlikely]]                          \
    return std::move(status_or).status();                    \
  declaration = *std::move(status_or)
