#include "server/core/workers/worker_registry.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/status_macros.h"
#include "server/core/requests/names.h"
#include "server/core/rounds/requirement_match.h"
#include "server/stored/worker_description.h"
#include "sheaf/v1/inspection_service.pb.h"

namespace sheaf {
namespace {

// How stale `last_seen_time` in the store may be: a write per Sync would cost more than the Sync.
constexpr absl::Duration kStoreEvery = absl::Seconds(10);
// A name is its identity's for this long after a call.
constexpr absl::Duration kNameKept = absl::Minutes(1);
constexpr absl::Duration kForgetAfter = absl::Minutes(10);

// For the log.
std::string By(const Identity& caller) { return caller.name.empty() ? "" : fmt::format(" as {}", caller.name); }

std::string Offers(const v1::SyncRequest& request) {
  std::string offers;
  for (const v1::OfferedComputation& offer : request.computations()) {
    offers += fmt::format("{}{}/{}", offers.empty() ? "offers " : ",", offer.name(), offer.version());
  }
  const std::string labels = CanonicalLabels(request.labels());
  if (offers.empty()) offers = "offers nothing";
  return labels.empty() ? offers : fmt::format("{}, labels {}", offers, labels);
}

}  // namespace

absl::StatusOr<const WorkerProfile*> WorkerRegistry::Saw(const v1::SyncRequest& request, const IdentityPtr& caller,
                                                         absl::Time now) {
  const std::string population = PopulationOrDefault(request.population());
  const WorkerName name(request.worker());
  std::string description = EncodeDescription(request);
  if (static_cast<int64_t>(description.size()) > context_.limits.worker_bytes_max) {
    return context_.limits.Refuse(
        &Limits::worker_bytes_max,
        fmt::format("the computations and labels of worker {} have {} bytes, over", name, description.size()));
  }
  const auto known = profiles_.find({population, name});
  if (known != profiles_.end()) {
    const WorkerProfile& profile = known->second.profile;
    if (known->second.stored_time != absl::InfinitePast() && profile.caller->name != caller->name &&
        !profile.caller->name.empty() && now - profile.last_seen_time < kNameKept) {
      return absl::PermissionDeniedError(
          fmt::format("worker {} of population '{}' is somebody else's, who called within the last minute; give this "
                      "one another name (--name)",
                      name, population));
    }
  }
  if (known == profiles_.end() || known->second.profile.caller->name != caller->name) {
    RETURN_IF_ERROR(CheckHolder(population, name, *caller));
    RETURN_IF_ERROR(CheckRoom(population, *caller, known == profiles_.end()));
  }
  if (known == profiles_.end() || description != known->second.description ||
      now - known->second.stored_time >= kStoreEvery) {
    ASSIGN_OR_RETURN(
        const WorkerRecord record,
        context_.store.SawWorker({.name = name, .population = population, .description = description, .now = now}));
    if (known == profiles_.end()) {
      num_by_population_.Add(population, 1);
      joins_.Info(now, "worker {} of population {} joins{}: version {}, {}{}", name, population, By(*caller),
                  request.software_version(), Offers(request), record.is_draining ? "; it is drained" : "");
    }
    Entry& entry = profiles_[{population, name}];
    // It may run other things now.
    if (description != entry.description) entry.profile.looked_at = entry.profile.looked_at_announced = 0;
    SetCaller(entry, caller);
    WorkerProfile& profile = entry.profile;
    profile.name = name;
    profile.population = population;
    if (entry.minute == WorkerAges::kNone) profile.slot = context_.figures.slots.Of(population);
    profile.software_version = request.software_version();
    profile.protocol_version = request.protocol_version();
    profile.computations = {request.computations().begin(), request.computations().end()};
    profile.labels = request.labels();
    profile.is_draining = record.is_draining;
    profile.last_seen_time = now;
    entry.description = std::move(description);
    entry.stored_time = now;
    CountAge(entry, WorkerAges::MinuteOf(now));
    return &profile;
  }
  known->second.profile.last_seen_time = now;
  CountAge(known->second, WorkerAges::MinuteOf(now));
  SetCaller(known->second, caller);
  return &known->second.profile;
}

absl::Status WorkerRegistry::CheckHolder(const std::string& population, const WorkerName& name,
                                         const Identity& caller) const {
  ASSIGN_OR_RETURN(const std::vector<TaskRecord> held, context_.store.ListLeases(population, name));
  for (const TaskRecord& task : held) {
    const std::string& token = task.lease_token.value();
    if (!Identity::IsTagged(token) || caller.OwnsLease(token)) continue;
    return absl::PermissionDeniedError(
        fmt::format("worker {} of population '{}' is somebody else's, who holds task {}; give this one another name "
                    "(--name)",
                    name, population, task.id.ToString()));
  }
  return absl::OkStatus();
}

absl::Status WorkerRegistry::CheckRoom(const std::string& population, const Identity& caller, bool is_new) const {
  if (is_new && static_cast<int64_t>(profiles_.size()) >= context_.limits.workers_max) {
    return context_.limits.Refuse(&Limits::workers_max,
                                  fmt::format("{} workers called within the last ten minutes,", profiles_.size()));
  }
  const Limits& limits = context_.limits;
  const int64_t max = num_by_population_.Max(population, limits.workers_max, limits.population_percent_max);
  if (is_new && num_by_population_.Of(population) >= max) {
    return limits.RefuseShare(
        &Limits::workers_max,
        fmt::format("{} workers of population '{}' called within the last ten minutes: it may have",
                    num_by_population_.Of(population), population));
  }
  const auto found = num_by_identity_.find(caller.name);
  if (found == num_by_identity_.end() || found->second < context_.limits.workers_per_identity_max) {
    return absl::OkStatus();
  }
  return limits.Refuse(&Limits::workers_per_identity_max,
                       fmt::format("{} workers of {} called within the last ten minutes,", found->second,
                                   caller.name.empty() ? "this machine" : caller.name));
}

void WorkerRegistry::SetCaller(Entry& entry, const IdentityPtr& caller) {
  if (entry.is_counted && entry.profile.caller->name == caller->name) {
    if (entry.profile.caller != caller) entry.profile.caller = caller;
    return;
  }
  if (entry.is_counted) Uncount(entry.profile.caller->name);
  ++num_by_identity_[caller->name];
  entry.is_counted = true;
  entry.profile.caller = caller;
}

void WorkerRegistry::Uncount(const std::string& identity) {
  const auto found = num_by_identity_.find(identity);
  if (--found->second == 0) num_by_identity_.erase(found);
}

const WorkerProfile* WorkerRegistry::Find(const std::string& population, const WorkerName& name) const {
  const auto found = profiles_.find({population, name});
  return found == profiles_.end() ? nullptr : &found->second.profile;
}

absl::StatusOr<WorkerRecord> WorkerRegistry::SetDraining(const std::string& population, const WorkerName& name,
                                                         bool is_draining) {
  ASSIGN_OR_RETURN(WorkerRecord record, context_.store.SetWorkerDraining(
                                            {.name = name, .population = population, .is_draining = is_draining}));
  LogInfo("worker {} of population {} {}", name, population, is_draining ? "is drained" : "is taken back into service");
  const auto found = profiles_.find({population, name});
  if (found != profiles_.end()) found->second.profile.is_draining = is_draining;
  return record;
}

void WorkerRegistry::ForEach(const std::string& population, const WorkerName& after,
                             absl::FunctionRef<bool(const WorkerProfile&)> use) const {
  for (auto it = profiles_.upper_bound({population, after}); it != profiles_.end(); ++it) {
    if (it->first.first != population || !use(it->second.profile)) return;
  }
}

void WorkerRegistry::NoteLook(const WorkerProfile& worker, int64_t WorkerProfile::*looked_at, int64_t work_version) {
  const auto found = profiles_.find({worker.population, worker.name});
  if (found != profiles_.end()) found->second.profile.*looked_at = work_version;
}

void WorkerRegistry::NoteAppointment(const WorkerProfile& worker, absl::Time appointment) {
  const auto found = profiles_.find({worker.population, worker.name});
  if (found != profiles_.end()) found->second.profile.appointment = appointment;
}

void WorkerRegistry::Prune(absl::Time now) {
  for (auto it = profiles_.begin(); it != profiles_.end();) {
    if (now - it->second.profile.last_seen_time <= kForgetAfter) {
      ++it;
      continue;
    }
    leaves_.Info(now, "worker {} of population {} is gone: no call for {}", it->second.profile.name,
                 it->second.profile.population, absl::FormatDuration(kForgetAfter));
    Uncount(it->second.profile.caller->name);
    num_by_population_.Add(it->second.profile.population, -1);
    CountAge(it->second, WorkerAges::kNone);
    it = profiles_.erase(it);
  }
}

void WorkerRegistry::OnRollback() {
  for (auto& [key, entry] : profiles_) entry.stored_time = absl::InfinitePast();
}

}  // namespace sheaf
