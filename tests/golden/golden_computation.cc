#include "tests/golden/golden_computation.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace sheaf::golden {
namespace {

// A member of the payload, or what it is without one.
struct Script {
  // How long it takes; progress grows each second.
  int seconds = 1;
  // From this second on it makes no progress.
  int silent_from = 1 << 20;
  float value = 1;
  // Elements that the contribution has too many: what is handed in is wrong.
  int too_many = 0;
  // It fails with this sentence; `permanent`: wherever it runs.
  std::string fail;
  bool permanent = false;
  // Rows of the broadcast's tensor "w" that it fetches first; "broadcast": it fetches the whole.
  std::vector<int64_t> rows;
  bool broadcast = false;
};

Script Parse(const std::string& payload) {
  Script script;
  const auto json = nlohmann::json::parse(payload.empty() ? "{}" : payload);
  script.seconds = json.value("seconds", script.seconds);
  script.silent_from = json.value("silent_from", script.silent_from);
  script.value = json.value("value", script.value);
  script.too_many = json.value("too_many", script.too_many);
  script.fail = json.value("fail", script.fail);
  script.permanent = json.value("permanent", script.permanent);
  script.rows = json.value("rows", script.rows);
  script.broadcast = json.value("broadcast", script.broadcast);
  return script;
}

class GoldenTask final : public PreparedTask {
 public:
  explicit GoldenTask(const v1::Lease& lease) : script_(Parse(lease.payload())), output_(lease.aggregate().outputs(0)) {
    needs_.whole_broadcast = script_.broadcast;
    if (script_.rows.empty()) return;
    v1::RowSelection& selection = needs_.selections.emplace_back();
    selection.set_tensor("w");
    for (const int64_t row : script_.rows) selection.add_rows(row);
  }

  const InputRequest& input_request() const override { return needs_; }
  const Script& script() const { return script_; }

  absl::StatusOr<TaskOutcome> Run(const TaskInputs&, RunControl&) override {
    if (!script_.fail.empty()) {
      return script_.permanent ? absl::InvalidArgumentError(script_.fail) : absl::InternalError(script_.fail);
    }
    const int64_t size = output_.dense_shape(0) + script_.too_many;
    const std::vector<float> values(size, script_.value);
    v1::Contribution contribution;
    contribution.set_num_clients(1);
    v1::OutputValue& value = *contribution.add_outputs();
    value.set_name(output_.name());
    value.mutable_dense()->set_dtype(v1::FLOAT32);
    value.mutable_dense()->add_shape(size);
    value.mutable_dense()->set_data(values.data(), values.size() * sizeof(float));
    return contribution;
  }

 private:
  const Script script_;
  const v1::OutputSpec output_;
  InputRequest needs_;
};

// One second of a run after the other.
struct Running {
  simulation::Agenda& agenda;
  std::shared_ptr<GoldenTask> task;
  std::shared_ptr<RunControl> control;
  Runner::RunDone done;
  int second = 0;

  static void Go(const std::shared_ptr<Running>& run) {
    const Script& script = run->task->script();
    if (run->control->is_cancelled()) return run->done(absl::CancelledError("told to stop"));
    if (run->second >= script.seconds) {
      const absl::StatusOr<TaskOutcome> outcome = run->task->Run({}, *run->control);
      if (!outcome.ok()) return run->done(outcome.status());
      return run->done(std::get<v1::Contribution>(*outcome).SerializeAsString());
    }
    if (run->second < script.silent_from) run->control->ReportProgress();
    ++run->second;
    run->agenda.After(absl::Seconds(1), [run] { Go(run); });
  }
};

}  // namespace

std::vector<v1::OfferedComputation> GoldenRunner::Offers() const {
  v1::OfferedComputation offer;
  offer.set_name("golden");
  offer.set_version(1);
  return {offer};
}

void GoldenRunner::Prepare(std::shared_ptr<const v1::Lease> lease, std::shared_ptr<RunControl>, PrepareDone done) {
  done(std::make_shared<GoldenTask>(*lease));
}

void GoldenRunner::Run(std::shared_ptr<PreparedTask> task, std::shared_ptr<const TaskInputs>,
                       std::shared_ptr<RunControl> control, RunDone done) {
  Running::Go(std::make_shared<Running>(
      Running{agenda_, std::static_pointer_cast<GoldenTask>(task), std::move(control), std::move(done)}));
}

}  // namespace sheaf::golden
