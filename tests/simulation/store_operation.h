// StoreOperation: every operation of TaskStore and PayloadStore, each a place between which the simulated server may
// crash. tests/layout/store_operations_test.py holds the table to the two interfaces; the run reports how often each
// was passed and how many crashes fell before and after it.
#pragma once

#include <span>
#include <string_view>

namespace sheaf::simulation {

enum class StoreOperation {
  kBeginBatch,
  kCommitBatch,
  kRollbackBatch,
  kStageTasks,
  kCreateRound,
  kGetRound,
  kCountTasks,
  kListRounds,
  kMoveRound,
  kCarryOver,
  kGetBlobUse,
  kListFormerBroadcasts,
  kLeaseTasks,
  kLeaseAgain,
  kFirstLeaseTime,
  kListLeases,
  kRenewLease,
  kListExpired,
  kEndAttempt,
  kRequeueTask,
  kLimitTimes,
  kRecordContribution,
  kListContributions,
  kSaveCheckpoint,
  kForgetContributionsAfterCheckpoint,
  kGetTask,
  kGetTaskState,
  kPlaceOf,
  kListAttempts,
  kListTasks,
  kSkipTasks,
  kDescribeQueue,
  kListRequirements,
  kCountQueued,
  kNextDueTime,
  kSawWorker,
  kListWorkers,
  kSetWorkerDraining,
  kDeleteEndedRounds,
  kListWorkerAges,
  kDeleteWorkers,
  kCreateToken,
  kRevokeToken,
  kDeleteToken,
  kListTokens,
  kGetInfo,
  kListServers,
  kSetServerDraining,
  kStartUpload,
  kStartMemoryUpload,
  kGetUpload,
  kGetUploadUse,
  kWriteChunk,
  kFinishUpload,
  kMoveUploadToBlob,
  kAddUploadToSpool,
  kOpenUpload,
  kDeleteUpload,
  kDeleteStaleUploads,
  kWriteBlob,
  kGetBlobSize,
  kOpenBlob,
  kDeleteBlob,
  kListBlobs,
  kAppendToSpool,
  kSyncSpools,
  kReadFromSpool,
  kRollSpool,
  kDeleteSpoolSegments,
  kWriteCheckpoint,
  kReadCheckpoint,
  kDeleteCheckpointsExcept,
  kDeleteRound,
  kListRoundsWithPayloads,
};

struct StoreOperationRow {
  StoreOperation operation;
  std::string_view name;
  // Why no run comes here; empty: runs do.
  std::string_view unreached = "";
};

// In the order of the enumeration.
std::span<const StoreOperationRow> StoreOperations();

}  // namespace sheaf::simulation
