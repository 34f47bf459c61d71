#include "server/core/inspection/task_listing.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "server/core/inspection/views.h"
#include "server/core/requests/names.h"
#include "server/core/requests/state_filter.h"

namespace sheaf {
namespace {

// Some milliseconds.
constexpr int64_t kTasksPerSlice = 50'000;

}  // namespace

void TaskListing::List(const v1::ListTasksRequest& request, Done done) {
  absl::StatusOr<Search> search = Parse(request);
  if (!search.ok()) return done(search.status());
  // Most are done within a slice, and wait for no others.
  const absl::StatusOr<bool> is_done = RunSlice(*search);
  if (!is_done.ok()) return done(is_done.status());
  if (*is_done) return done(std::move(search->page));
  if (is_draining_) return done(absl::UnavailableError("the server is stopping"));
  const int64_t waiting_max = context_.limits.queued_inspections_max;
  if (static_cast<int64_t>(searches_.size()) >= waiting_max) {
    return done(context_.limits.Refuse(&Limits::queued_inspections_max,
                                       fmt::format("{} lists of tasks are being put together,", searches_.size()),
                                       "name a round, or try again in a moment"));
  }
  search->done = std::move(done);
  searches_.push_back(*std::move(search));
  PostGoOn();
}

absl::StatusOr<TaskListing::Search> TaskListing::Parse(const v1::ListTasksRequest& request) const {
  ASSIGN_OR_RETURN(const int page_size, PageSize(request.page_size(), context_.limits.page_size_max));
  Search search{
      .params = {.population = PopulationOrDefault(request.population()), .worker = WorkerName(request.worker())},
      .page_size = page_size,
      .room = PageRoom(context_.limits.page_bytes_max),
      .page = {},
      .done = {}};
  TaskStore::ListTasksParams& params = search.params;
  if (!request.round().empty()) {
    params.round = RoundId(request.round());
    RETURN_IF_ERROR(context_.store.GetRound(*params.round).status());
  }
  ASSIGN_OR_RETURN(params.states, ParseStates<TaskState>(request.states(), *v1::TaskState_descriptor()));
  if (!request.page_token().empty()) {
    params.after = TaskId::Parse(request.page_token());
    if (!params.after) return BadPageToken(request.page_token());
  }
  return search;
}

absl::StatusOr<bool> TaskListing::RunSlice(Search& search) const {
  TaskStore::ListTasksParams& params = search.params;
  const bool wants_all = params.states.empty() && params.worker.empty();
  if (!wants_all) {
    params.limit = kTasksPerSlice;
    ASSIGN_OR_RETURN(params.until, context_.store.SkipTasks(params));
  }
  const auto read = [&](int limit) {
    params.limit = limit;
    return context_.store.ListTasks(params);
  };
  const auto add = [&](const TaskRecord& record) -> absl::StatusOr<bool> {
    v1::Task task = ToProto(record);
    if (!search.room.Take(task)) return false;
    params.after = record.id;
    *search.page.add_tasks() = std::move(task);
    return true;
  };
  ASSIGN_OR_RETURN(const bool has_more, FillPage(search.page_size - search.page.tasks_size(), read, add));
  if (has_more) search.page.set_next_page_token(search.page.tasks().rbegin()->id());
  if (has_more || !params.until) return true;
  params.after = params.until;
  return false;
}

void TaskListing::GoOn() {
  is_posted_ = false;
  if (searches_.empty()) return;
  Search& search = searches_.front();
  const absl::StatusOr<bool> is_done = RunSlice(search);
  if (!is_done.ok() || *is_done) {
    const Search ended = std::move(search);
    searches_.pop_front();
    is_done.ok() ? ended.done(ended.page) : ended.done(is_done.status());
  }
  PostGoOn();
}

void TaskListing::PostGoOn() {
  if (searches_.empty() || std::exchange(is_posted_, true)) return;
  context_.executor.Post([this](absl::Time /*now*/) { GoOn(); });
}

void TaskListing::BeginDrain() {
  is_draining_ = true;
  for (const Search& search : std::exchange(searches_, {}))
    search.done(absl::UnavailableError("the server is stopping"));
}

}  // namespace sheaf
