// TaskListing: pages of the tasks that there are, by state, worker, round or population.
//
//   listing.List(request, [](const absl::StatusOr<v1::ListTasksResponse>& page) { LogInfo("{}", page.ok()); });
//
// Tasks that are wanted may lie far apart among others: there may be millions. So a page is looked for in slices of
// some milliseconds, one in a batch, whoever asks and however many: others are served in between. A slice looks at so
// many tasks, and at the rounds that have them: O(tasks + rounds).
//
// Runs in the core's thread, inside a batch; so do the callbacks, perhaps before List returns.
#pragma once

#include <deque>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/requests/paging.h"
#include "sheaf/v1/inspection_service.pb.h"
#include "storage/task_store.h"

namespace sheaf {

class TaskListing {
 public:
  // Outlives this.
  explicit TaskListing(CoreContext& context) : context_(context) {}

  // INVALID_ARGUMENT naming what is wrong with the request; NOT_FOUND if there is no such round; RESOURCE_EXHAUSTED
  // with a retry hint if too many ask; UNAVAILABLE if the server is stopping; errors of the store.
  using Done = std::function<void(absl::StatusOr<v1::ListTasksResponse>)>;
  void List(const v1::ListTasksRequest& request, Done done);

  // Answers everybody; from here on nobody waits.
  void BeginDrain();

 private:
  struct Search {
    TaskStore::ListTasksParams params;
    int page_size;
    PageRoom room;
    v1::ListTasksResponse page;
    Done done;
  };

  absl::StatusOr<Search> Parse(const v1::ListTasksRequest& request) const;
  // True if the page is full, or there are no more tasks.
  absl::StatusOr<bool> RunSlice(Search& search) const;
  // A slice of the first search.
  void GoOn();
  void PostGoOn();

  CoreContext& context_;
  // Those that one slice did not end. The first is under way.
  std::deque<Search> searches_;
  bool is_posted_ = false;
  bool is_draining_ = false;
};

}  // namespace sheaf
