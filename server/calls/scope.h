// Scopes: what a request is about, and whether its caller reaches that. Every row of the MethodTable has one: a request
// names a population, a round, a task, a broadcast or an upload, or is about the server as a whole.
//
//   Scope<v1::GetRoundRequest> scope = OfRound(&v1::GetRoundRequest::round);
//   RETURN_IF_ERROR(scope.check(request, caller, core));
//   const Subject subject = scope.about(request);                 // {Subject::kNamed, "r-7k2m9q4x"}
//
// PERMISSION_DENIED, or the codes of looking: NOT_FOUND. Runs where the method does.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/core/access/identity.h"

namespace sheaf {

class Core;

// By what a server that has a part of the populations knows where a request goes.
struct Subject {
  enum Kind {
    // Nothing in particular, or what is the same for all of them.
    kServer,
    kPopulation,
    // A round, a task or an upload: its name says in which shard it is (storage/shard.h).
    kNamed,
    // By its digest.
    kBroadcast
  };
  Kind kind = kServer;
  // The request's own.
  std::string_view name = {};
  // A population that nobody has seen begins with such a request.
  bool may_be_first = false;
};

// "default" where it is empty.
Subject AboutPopulation(const std::string& population);

template <typename Request>
struct Scope {
  std::function<absl::Status(const Request& request, const Identity& caller, Core& core)> check;
  std::function<Subject(const Request& request)> about;
};
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
  return {[](const Request&, const Identity&, Core&) { return absl::OkStatus(); },
          [](const Request&) { return Subject(); }};
}
template <typename Request>
Scope<Request> OfPopulation(Field<Request> field) {
  return {[field](const Request& request, const Identity& caller, Core&) {
            return CheckPopulationScope((request.*field)(), caller);
          },
          [field](const Request& request) { return AboutPopulation((request.*field)()); }};
}
// What `field` has says in which shard it is.
template <typename Request>
std::function<Subject(const Request& request)> AboutNamed(Field<Request> field) {
  return [field](const Request& request) { return Subject{.kind = Subject::kNamed, .name = (request.*field)()}; };
}
template <typename Request>
Scope<Request> OfRound(Field<Request> field) {
  return {[field](const Request& request, const Identity& caller, Core& core) {
            return CheckRoundScope((request.*field)(), caller, core);
          },
          AboutNamed(field)};
}
template <typename Request>
Scope<Request> OfReleaseOf(Field<Request> field) {
  return {[field](const Request& request, const Identity& caller, Core& core) {
            return CheckReleaseScope((request.*field)(), caller, core);
          },
          AboutNamed(field)};
}
// A relay reaches the rounds that relays may create; callers with one of the roles `others` reach any.
template <typename Request>
Scope<Request> OfRound(Field<Request> field, RoleSet others) {
  return {[field, others](const Request& request, const Identity& caller, Core& core) {
            return caller.roles.meets(others) ? CheckRoundScope((request.*field)(), caller, core)
                                              : CheckReleaseScope((request.*field)(), caller, core);
          },
          AboutNamed(field)};
}
template <typename Request>
Scope<Request> OfTask(Field<Request> field) {
  return {[field](const Request& request, const Identity& caller, Core& core) {
            return CheckTaskScope((request.*field)(), caller, core);
          },
          AboutNamed(field)};
}
// Runs in any thread.
template <typename Request>
Scope<Request> OfBroadcast(Field<Request> field) {
  return {[field](const Request& request, const Identity& caller, Core& core) {
            return CheckBroadcastScope((request.*field)(), caller, core);
          },
          [field](const Request& request) { return Subject{.kind = Subject::kBroadcast, .name = (request.*field)()}; }};
}
// Runs in any thread.
template <typename Request>
Scope<Request> OfUpload(Field<Request> field) {
  return {[field](const Request& request, const Identity& caller, Core&) {
            return CheckUploadScope((request.*field)(), caller);
          },
          AboutNamed(field)};
}

}  // namespace sheaf
