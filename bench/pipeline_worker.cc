// A worker for bench/run.sh --only pipeline: its computation "sleep" prepares and computes for as long as the payload
// says, "300ms 300ms", without using the CPU, and returns zeros. Options as of sheaf-worker.
#include "absl/strings/str_split.h"
#include "probe/one_hot.h"
#include "sdk/cpp/computation/inputless_task.h"
#include "worker/worker_main.h"

namespace sheaf {
namespace {

class Sleep final : public Computation {
 public:
  explicit Sleep(Waiter& waiter) : waiter_(waiter) {}
  std::string_view name() const override { return "sleep"; }
  int version() const override { return 1; }

  absl::StatusOr<std::unique_ptr<PreparedTask>> Prepare(const v1::Lease& lease, RunControl&) const override {
    const std::vector<std::string> words = absl::StrSplit(lease.payload(), ' ');
    absl::Duration prepare;
    absl::Duration compute;
    if (words.size() != 2 || !absl::ParseDuration(words[0], &prepare) || !absl::ParseDuration(words[1], &compute)) {
      return absl::InvalidArgumentError("the payload says how long to prepare and to compute, as \"300ms 300ms\"");
    }
    waiter_.Wait(prepare);
    return std::make_unique<InputlessTask>([this, compute, spec = lease.aggregate()](RunControl&) {
      waiter_.Wait(compute);
      return ZeroContribution(spec);
    });
  }

 private:
  Waiter& waiter_;
};

}  // namespace
}  // namespace sheaf

int main(int argc, char** argv) {
  return sheaf::WorkerMain(argc, argv, {{.name = "sleep", .data = {}, .make = [](const sheaf::ComputationParts& parts) {
                                           return std::make_unique<sheaf::Sleep>(parts.waiter);
                                         }}});
}
