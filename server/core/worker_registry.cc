#include "server/core/worker_registry.h"

#include <fmt/format.h>

#include "base/status_macros.h"
#include "server/core/round_spec.h"
#include "server/core/scheduler.h"
#include "sheaf/v1/inspection_service.pb.h"

namespace sheaf {
namespace {

// How stale `last_seen_time` in the store may be: a write per Sync would cost more than the Sync.
constexpr absl::Duration kStoreEvery = absl::Seconds(10);
// A name is its identity's for this long after a call.
constexpr absl::Duration kNameKept = absl::Minutes(1);
constexpr absl::Duration kForgetAfter = absl::Minutes(10);

}  // namespace

std::string DescribeWorker(const v1::SyncRequest& request) {
  v1::Worker worker;
  worker.set_software_version(request.software_version());
  worker.set_protocol_version(request.protocol_version());
  *worker.mutable_computations() = request.computations();
  *worker.mutable_labels() = request.labels();
  return worker.SerializeAsString();
}

absl::StatusOr<const WorkerProfile*> WorkerRegistry::Saw(const v1::SyncRequest& request, const IdentityPtr& caller,
                                                         absl::Time now) {
  const std::string population = PopulationOrDefault(request.population());
  const WorkerName name(request.worker());
  Entry& entry = profiles_[{population, name}];
  WorkerProfile& profile = entry.profile;
  const bool is_known = entry.stored_time != absl::InfinitePast();
  if (is_known && profile.caller->name != caller->name && !profile.caller->name.empty() &&
      now - profile.last_seen_time < kNameKept) {
    return absl::PermissionDeniedError(
        fmt::format("worker {} of population '{}' is somebody else's, who called within the last minute; give this one "
                    "another name (--name)",
                    name, population));
  }
  std::string description = DescribeWorker(request);
  if (description != entry.description || now - entry.stored_time >= kStoreEvery) {
    ASSIGN_OR_RETURN(
        const WorkerRecord record,
        context_.store.SawWorker({.name = name, .population = population, .description = description, .now = now}));
    profile = {.name = name,
               .population = population,
               .caller = caller,
               .software_version = request.software_version(),
               .protocol_version = request.protocol_version(),
               .computations = {request.computations().begin(), request.computations().end()},
               .labels = request.labels(),
               .is_draining = record.is_draining};
    entry.description = std::move(description);
    entry.stored_time = now;
  }
  profile.last_seen_time = now;
  if (profile.caller != caller) profile.caller = caller;
  return &profile;
}

const WorkerProfile* WorkerRegistry::Find(const std::string& population, const WorkerName& name) const {
  const auto found = profiles_.find({population, name});
  return found == profiles_.end() ? nullptr : &found->second.profile;
}

absl::StatusOr<WorkerRecord> WorkerRegistry::SetDraining(const std::string& population, const WorkerName& name,
                                                         bool is_draining) {
  ASSIGN_OR_RETURN(WorkerRecord record, context_.store.SetWorkerDraining(population, name, is_draining));
  const auto found = profiles_.find({population, name});
  if (found != profiles_.end()) found->second.profile.is_draining = is_draining;
  return record;
}

bool WorkerRegistry::CanAnyRun(const std::string& population, const v1::Computation& computation,
                               const std::string& requirement, absl::Duration window, absl::Time now) const {
  for (const auto& [key, entry] : profiles_) {
    const WorkerProfile& profile = entry.profile;
    if (profile.population == population && !profile.is_draining && now - profile.last_seen_time <= window &&
        Offers(profile, computation) && Fulfils(profile.labels, requirement)) {
      return true;
    }
  }
  return false;
}

void WorkerRegistry::Prune(absl::Time now) {
  for (auto it = profiles_.begin(); it != profiles_.end();) {
    it = now - it->second.profile.last_seen_time > kForgetAfter ? profiles_.erase(it) : std::next(it);
  }
}

void WorkerRegistry::OnRollback() {
  for (auto& [key, entry] : profiles_) entry.stored_time = absl::InfinitePast();
}

}  // namespace sheaf
