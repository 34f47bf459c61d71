#include "tests/cli/sample_messages.h"

#include <google/protobuf/text_format.h>

#include "base/check.h"
#include "proto/time.h"

namespace sheaf {
namespace {

template <typename Message>
Message FromText(const std::string& text) {
  Message message;
  SHEAF_CHECK(google::protobuf::TextFormat::ParseFromString(text, &message), "{}", text);
  return message;
}

}  // namespace

v1::Round SucceededRound() {
  return FromText<v1::Round>(R"(
      id: "r-7k2m9q4x"
      spec {
        population: "default" job: "tags" goal: 50 min_goal: 40
        computation { name: "tags" version_min: 1 }
        aggregate {
          outputs { name: "rows" operator: "weighted_coordinate_mean" dtype: FLOAT32 dense_shape: [56942, 500] }
          outputs { name: "bias" operator: "weighted_mean" dtype: FLOAT32 dense_shape: 500 }
        }
        broadcast_digest: "c0ffee"
      }
      state: SUCCEEDED etag: "9"
      create_time { seconds: 1769860769 } end_time { seconds: 1769860770 nanos: 250000000 }
      deadline_time { seconds: 1769864369 }
      tasks { succeeded: 50 cancelled: 15 }
      num_failed_attempts: 1 num_lost_attempts: 2 num_contributions: 50 num_clients: 50
      bytes_up: 7400000 bytes_down: 7100000
      phases {
        wait { nanos: 112500000 } download { nanos: 12500000 } prepare { nanos: 37500000 } compute { nanos: 762500000 }
        upload { nanos: 112500000 } fold { nanos: 100000000 } commit { nanos: 112500000 }
      }
      aggregate {
        digest: "abad1dea" size_bytes: 5412345 num_contributions: 50 num_clients: 50
        outputs {
          name: "rows" operator: "weighted_coordinate_mean" touched: 2698 released: 2698
          divisor: "weight of the contributions that touched the coordinate"
        }
        outputs {
          name: "bias" operator: "weighted_mean" divisor: "weight of all contributions" divisor_value: 1164
          touched: 500 released: 500
        }
      }
      metrics { key: "loss" value: 21.34567891 } metrics { key: "examples" value: 23.28 })");
}

v1::Round TracedRound() {
  v1::Round round = SucceededRound();
  const auto add = [&round](const char* phase, int begin_ms, int end_ms, int attempt, const char* worker) {
    v1::PhaseInterval& added = *round.add_critical_path();
    added.set_phase(phase);
    const absl::Time created = FromProto(round.create_time());
    *added.mutable_begin_time() = ToProto(created + absl::Milliseconds(begin_ms));
    *added.mutable_end_time() = ToProto(created + absl::Milliseconds(end_ms));
    if (attempt == 0) return;
    added.set_task("r-7k2m9q4x/4");
    added.set_attempt(attempt);
    added.set_worker(worker);
  };
  add("wait", 0, 100, 1, "edge-1");
  add("lost", 100, 300, 1, "edge-1");
  add("wait", 300, 400, 2, "edge-7");
  add("grant", 400, 410, 2, "edge-7");
  add("prepare", 410, 420, 2, "edge-7");
  add("compute", 420, 920, 2, "edge-7");
  add("hand_in", 920, 1000, 2, "edge-7");
  add("receive", 1000, 1050, 2, "edge-7");
  add("commit", 1050, 1100, 0, "");
  add("fold", 1100, 1200, 0, "");
  add("seal", 1200, 1250, 0, "");
  return round;
}

v1::Task TracedTask() {
  const v1::Round round = TracedRound();
  v1::Task task;
  task.set_id("r-7k2m9q4x/4");
  task.set_index(4);
  for (const v1::PhaseInterval& interval : round.critical_path()) {
    if (interval.attempt() == 0) continue;
    if (task.attempts_size() < interval.attempt()) {
      task.add_attempts()->set_number(interval.attempt());
      task.mutable_attempts()->rbegin()->set_worker(interval.worker());
    }
    v1::Attempt& attempt = *task.mutable_attempts()->rbegin();
    *attempt.mutable_end_time() = interval.end_time();
    attempt.set_outcome(interval.attempt() == 1 ? v1::ATTEMPT_LOST : v1::ATTEMPT_SUCCEEDED);
    if (interval.phase() == "wait") *attempt.mutable_lease_time() = interval.end_time();
    if (interval.phase() != "lost") *attempt.add_intervals() = interval;
  }
  return task;
}

v1::Round CollectingRound() {
  v1::Round round = SucceededRound();
  round.set_id("r-8b3n5r6y");
  round.set_state(v1::COLLECTING);
  round.set_etag("4");
  round.clear_end_time();
  round.mutable_create_time()->set_seconds(1769860796);
  round.clear_phases();
  round.clear_aggregate();
  round.clear_metrics();
  *round.mutable_tasks() = FromText<v1::TaskCounts>("queued: 20 leased: 3 succeeded: 26 buried: 1");
  round.set_num_contributions(26);
  round.set_num_clients(26);
  round.set_bytes_up(5100000);
  round.set_bytes_down(1200000);
  return round;
}

v1::Task RetriedTask() {
  return FromText<v1::Task>(R"(
      id: "r-8b3n5r6y/17" round: "r-8b3n5r6y" index: 17 state: LEASED data_selector: "client:912" worker: "demo-2"
      num_attempts: 2 num_lost: 1 last_error: "the lease expired"
      create_time { seconds: 1769860760 }
      attempts {
        number: 1 worker: "demo-1" lease_time { seconds: 1769860761 } expire_time { seconds: 1769860791 }
        end_time { seconds: 1769860791 } outcome: ATTEMPT_LOST error: "the lease expired"
      }
      attempts {
        number: 2 worker: "demo-2" lease_time { seconds: 1769860796 nanos: 500000000 }
        expire_time { seconds: 1769860826 nanos: 500000000 }
        timings { download { nanos: 1200000 } prepare { nanos: 300000 } compute { nanos: 85000000 } bytes_down: 58000 }
      })");
}

}  // namespace sheaf
