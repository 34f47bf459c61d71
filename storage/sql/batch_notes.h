// BatchNotes: the rows of tasks, attempts and contributions that a batch of a SqlTaskStore has changed and not yet
// written. They are written all together, at the commit, or before somebody asks the database (docs/adr/0016).
//
//   notes.PutTask(key, before, after);              // The newest row of a task replaces the one before.
//   const TaskRecord* task = notes.FindTask(key);   // Null if nothing is noted of it.
//   notes.Clear();                                  // Written, or rolled back.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "storage/records.h"
#include "storage/transitions.h"

namespace sheaf {

class BatchNotes {
 public:
  struct Task {
    // Without what its submitter wrote.
    TaskRecord record;
    // QUEUED, and waits out a backoff.
    bool is_delayed = false;
    // What the database has; the row is written only if it does.
    TaskState stored_state;
    int32_t stored_num_attempts = 0;
    int32_t stored_attempt = 0;
    // One of its attempts has ended.
    bool has_ended = false;
    // The database may have a row of second_leases for it.
    bool may_have_second_row = false;

    // The database has this lease, and need only hear of its progress.
    bool IsRenewal() const {
      return record.state == TaskState::kLeased && stored_state == TaskState::kLeased &&
             stored_num_attempts == record.num_attempts && stored_attempt == record.attempt && !has_ended;
    }
    // It needs a row of second_leases.
    bool HasSecondRow() const {
      return record.state == TaskState::kLeased && (record.second_lease || record.attempt != record.num_attempts);
    }
    // There may be attempts older than the newest kAttemptsKept.
    bool HasOldAttempts() const {
      return record.num_attempts > kAttemptsKept && record.num_attempts > stored_num_attempts;
    }
  };
  struct Attempt {
    int64_t task_key = 0;
    AttemptRecord record;
  };
  struct Contribution {
    int64_t round_key = 0;
    int64_t task_key = 0;
    ContributionRecord record;
  };

  // `before` is what the task was for everybody until now. Its row says that it waits for nothing, until it is told.
  Task& PutTask(int64_t key, const TaskRecord& before, TaskRecord after) {
    SHEAF_CHECK(after.state == before.state || IsLegalMove(before.state, after.state),
                "task {} cannot move from {} to {}", after.id.ToString(), Name(before.state), Name(after.state));
    Task& task = tasks_
                     .try_emplace(key, Task{.record = {},
                                            .stored_state = before.state,
                                            .stored_num_attempts = before.num_attempts,
                                            .stored_attempt = before.attempt,
                                            .may_have_second_row =
                                                before.attempt != 0 &&
                                                (before.second_lease || before.attempt != before.num_attempts)})
                     .first->second;
    task.has_ended = task.has_ended || before.num_failed != after.num_failed || before.num_lost != after.num_lost ||
                     before.last_error != after.last_error;
    task.record = std::move(after);
    task.record.payload.clear();
    task.record.data_selector.clear();
    task.is_delayed = false;
    return task;
  }
  void Add(Attempt attempt) { attempts_.push_back(std::move(attempt)); }
  void Add(Contribution contribution) { contributions_.push_back(std::move(contribution)); }

  // Null if nothing is noted of it.
  const TaskRecord* FindTask(int64_t key) const {
    const auto found = tasks_.find(key);
    return found == tasks_.end() ? nullptr : &found->second.record;
  }

  // By key, as the database has them.
  const std::map<int64_t, Task>& tasks() const { return tasks_; }
  const std::vector<Attempt>& attempts() const { return attempts_; }
  const std::vector<Contribution>& contributions() const { return contributions_; }
  bool empty() const { return tasks_.empty() && attempts_.empty() && contributions_.empty(); }
  void Clear() {
    tasks_.clear();
    attempts_.clear();
    contributions_.clear();
  }

 private:
  std::map<int64_t, Task> tasks_;
  std::vector<Attempt> attempts_;
  std::vector<Contribution> contributions_;
};

}  // namespace sheaf
