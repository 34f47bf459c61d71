// Scopes: what a request is about, and whether its caller reaches that. Every row of the MethodTable has one: a request
// names a population, a round, a task, a broadcast or an upload, or is about the server as a whole.
//
//   Scope<v1::GetRoundRequest> scope = OfRound(&v1::GetRoundRequest::round);
//   RETURN_IF_ERROR(scope(request, caller, core));
//
// PERMISSION_DENIED, or the codes of looking: NOT_FOUND. Runs where the method does.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "server/core/access/identity.h"

namespace sheaf {

class Core;

template <typename Request>
using Scope = std::function<absl::Status(const Request& request, const Identity& caller, Core& core)>;
template <typename Request>
using Field = const std::string& (Request::*)() const;

// Of the request's field; empty means "default".
absl::Status CheckPopulationScope(const std::string& population, const Identity& caller);
absl::Status CheckRoundScope(const std::string& round, const Identity& caller, Core& core);
// Of what the round releases: values are for submitters, partial aggregates for relays.
absl::Status CheckReleaseScope(const std::string& round, const Identity& caller, Core& core);
absl::Status CheckTaskScope(const std::string& task, const Identity& caller, Core& core);
absl::Status CheckBroadcastScope(const std::string& digest, const Identity& caller, Core& core);
absl::Status CheckUploadScope(const std::string& upload_id, const Identity& caller);

// About no population: the role says it all, or the handler looks itself.
template <typename Request>
Scope<Request> OfServer() {
  return [](const Request&, const Identity&, Core&) { return absl::OkStatus(); };
}
template <typename Request>
Scope<Request> OfPopulation(Field<Request> field) {
  return [field](const Request& request, const Identity& caller, Core&) {
    return CheckPopulationScope((request.*field)(), caller);
  };
}
template <typename Request>
Scope<Request> OfRound(Field<Request> field) {
  return [field](const Request& request, const Identity& caller, Core& core) {
    return CheckRoundScope((request.*field)(), caller, core);
  };
}
template <typename Request>
Scope<Request> OfReleaseOf(Field<Request> field) {
  return [field](const Request& request, const Identity& caller, Core& core) {
    return CheckReleaseScope((request.*field)(), caller, core);
  };
}
// A relay reaches the rounds that relays may create; callers with one of the roles `others` reach any.
template <typename Request>
Scope<Request> OfRound(Field<Request> field, RoleSet others) {
  return [field, others](const Request& request, const Identity& caller, Core& core) {
    return caller.roles.meets(others) ? CheckRoundScope((request.*field)(), caller, core)
                                      : CheckReleaseScope((request.*field)(), caller, core);
  };
}
template <typename Request>
Scope<Request> OfTask(Field<Request> field) {
  return [field](const Request& request, const Identity& caller, Core& core) {
    return CheckTaskScope((request.*field)(), caller, core);
  };
}
// Runs in any thread.
template <typename Request>
Scope<Request> OfBroadcast(Field<Request> field) {
  return [field](const Request& request, const Identity& caller, Core& core) {
    return CheckBroadcastScope((request.*field)(), caller, core);
  };
}
// Runs in any thread.
template <typename Request>
Scope<Request> OfUpload(Field<Request> field) {
  return [field](const Request& request, const Identity& caller, Core&) {
    return CheckUploadScope((request.*field)(), caller);
  };
}

}  // namespace sheaf
