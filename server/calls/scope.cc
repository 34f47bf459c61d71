#include "server/calls/scope.h"

#include <fmt/format.h>

#include <optional>

#include "base/status_macros.h"
#include "server/core/core.h"
#include "server/core/inspection/views.h"
#include "server/core/requests/names.h"

namespace sheaf {

Subject AboutPopulation(const std::string& population) {
  return {.kind = Subject::kPopulation, .name = population.empty() ? std::string_view("default") : population};
}

absl::Status CheckPopulationScope(const std::string& population, const Identity& caller) {
  return caller.is_everywhere() ? absl::OkStatus() : caller.CheckPopulation(PopulationOrDefault(population));
}

absl::Status CheckRoundScope(const std::string& round, const Identity& caller, Core& core) {
  if (caller.is_everywhere()) return absl::OkStatus();
  const RoundId id(round);
  if (const LiveRound* live = core.rounds().Find(id); live != nullptr && caller.Reaches(live->spec.population())) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const RoundRecord record, core.queries().GetRound(id));
  if (caller.Reaches(record.population)) return absl::OkStatus();
  // Whose it is would be news to the caller.
  return absl::PermissionDeniedError(
      fmt::format("round {} is of a population that token {} of {} does not reach", id, caller.token, caller.name));
}

absl::Status CheckReleaseScope(const std::string& round, const Identity& caller, Core& core) {
  RETURN_IF_ERROR(CheckRoundScope(round, caller, core));
  if (caller.roles.has(v1::SUBMITTER) && caller.roles.has(v1::RELAY)) return absl::OkStatus();
  const RoundId id(round);
  v1::ReleaseForm form;
  if (const LiveRound* live = core.rounds().Find(id); live != nullptr) {
    form = live->spec.release();
  } else {
    ASSIGN_OR_RETURN(const RoundRecord record, core.queries().GetRound(id));
    ASSIGN_OR_RETURN(const v1::Round ended, ToProto(record));
    form = ended.spec().release();
  }
  return form == v1::PARTIAL_AGGREGATE ? caller.CheckRole("a partial aggregate", {v1::RELAY})
                                       : caller.CheckRole("what a round releases", {v1::SUBMITTER});
}

absl::Status CheckTaskScope(const std::string& task, const Identity& caller, Core& core) {
  const std::optional<TaskId> id = TaskId::Parse(task);
  // What is no task is the handler's to refuse.
  if (!id) return absl::OkStatus();
  // A task that was carried over goes on under its name when its first round has been deleted.
  return CheckRoundScope(core.context().store.PlaceOf(*id).value_or(*id).round.value(), caller, core);
}

absl::Status CheckBroadcastScope(const std::string& digest, const Identity& caller, Core& core) {
  const BroadcastReaders& readers = core.broadcasts().readers();
  const bool is_complete = readers.is_complete();
  if (readers.MayRead(digest, caller)) return absl::OkStatus();
  if (!is_complete) {
    return absl::UnavailableError("the server has just started, and reads which broadcasts its rounds have; try again");
  }
  return absl::PermissionDeniedError(
      fmt::format("no round in a population that token {} of {} reaches has the broadcast {}", caller.token,
                  caller.name, digest.substr(0, 64)));
}

absl::Status CheckUploadScope(const std::string& upload_id, const Identity& caller) {
  if (caller.OwnsUpload(upload_id)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      fmt::format("upload {} was not started by {}", upload_id.substr(0, 128), caller.name));
}

}  // namespace sheaf
