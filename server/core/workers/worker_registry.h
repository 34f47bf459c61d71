// WorkerRegistry: the workers that call, as last heard of. Profiles live in memory; the store hears of a worker when it
// is new, when it changes, and now and then.
//
//   ASSIGN_OR_RETURN(const WorkerProfile* worker, workers.Saw(request, caller, now));
//   const WorkerProfile* known = workers.Find("default", WorkerName("w1"));      // Null if it has not called lately.
//
// Runs in the core's thread, inside a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log_quota.h"
#include "server/core/access/identity.h"
#include "server/core/batches/core_context.h"
#include "server/core/figures/worker_ages.h"
#include "server/core/limits/population_share.h"
#include "sheaf/v1/work_service.pb.h"
#include "storage/records.h"

namespace sheaf {

struct WorkerProfile {
  WorkerName name;
  std::string population;
  // Of its last call.
  IdentityPtr caller = Identity::Anybody();
  std::string software_version;
  int32_t protocol_version = 0;
  std::vector<v1::OfferedComputation> computations;
  google::protobuf::Map<std::string, std::string> labels;
  absl::Time last_seen_time;
  bool is_draining = false;
  // RoundWork::version() up to which there is nothing for this worker to run, and to prepare: it was looked for, and
  // all that was there was given to it. Until then its rounds need no look.
  int64_t looked_at = 0;
  int64_t looked_at_announced = 0;
  // When it was told to come next (see PaceSteering); in the past, if it was not.
  absl::Time appointment = absl::InfinitePast();
  // Of its population, among the figures.
  size_t slot = 0;
};

class WorkerRegistry {
 public:
  explicit WorkerRegistry(CoreContext& context) : context_(context) {}

  // Notes the call. PERMISSION_DENIED if another identity has used the name within the last minute, or holds a lease
  // under it (which also is so after a restart, when nobody has called yet); RESOURCE_EXHAUSTED, naming the limit, if
  // there are too many workers, or it says too much of itself. The profile stays valid until the next call of a method
  // that is not const.
  absl::StatusOr<const WorkerProfile*> Saw(const v1::SyncRequest& request, const IdentityPtr& caller, absl::Time now);
  // There was no more for the worker to run, or to prepare, up to this version of the rounds' work.
  void NoteLook(const WorkerProfile& worker, int64_t WorkerProfile::*looked_at, int64_t work_version);
  // It was told to come then.
  void NoteAppointment(const WorkerProfile& worker, absl::Time appointment);
  // Null if it was not heard of since the server started.
  const WorkerProfile* Find(const std::string& population, const WorkerName& name) const;
  // NOT_FOUND.
  absl::StatusOr<WorkerRecord> SetDraining(const std::string& population, const WorkerName& name, bool is_draining);
  // The workers of a population by name, those after `after`: calls `use` for each until it returns false.
  void ForEach(const std::string& population, const WorkerName& after,
               absl::FunctionRef<bool(const WorkerProfile&)> use) const;
  // Forgets profiles not seen for long; the store keeps their records.
  void Prune(absl::Time now);
  // What was assumed to be stored may not be.
  void OnRollback();
  size_t size() const { return profiles_.size(); }

 private:
  struct Entry {
    WorkerProfile profile;
    // As last stored, and when.
    std::string description;
    absl::Time stored_time = absl::InfinitePast();
    bool is_counted = false;
    // Where WorkerAges has it.
    int64_t minute = WorkerAges::kNone;
  };

  // A name is its identity's as long as it holds a lease.
  absl::Status CheckHolder(const std::string& population, const WorkerName& name, const Identity& caller) const;
  absl::Status CheckRoom(const std::string& population, const Identity& caller, bool is_new) const;
  // Notes that the worker is this identity's from now on.
  void SetCaller(Entry& entry, const IdentityPtr& caller);
  void Uncount(const std::string& identity);
  // It called last at this minute, for the figures.
  void CountAge(Entry& entry, int64_t minute) {
    context_.figures.Of(entry.profile.slot).workers.Move(std::exchange(entry.minute, minute), minute);
  }

  CoreContext& context_;
  LogQuota joins_;
  LogQuota leaves_;
  std::map<std::pair<std::string, WorkerName>, Entry> profiles_;
  PopulationShare num_by_population_;
  // How many of them are whose, by the identity's name.
  std::map<std::string, int64_t> num_by_identity_;
};

}  // namespace sheaf
