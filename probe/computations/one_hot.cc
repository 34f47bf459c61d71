#include "probe/computations/one_hot.h"

#include <fmt/format.h>

#include <charconv>

#include "probe/one_hot.h"

namespace sheaf {
namespace {

class OneHot final : public Computation {
 public:
  std::string_view name() const override { return kOneHotComputation; }
  int version() const override { return 1; }
  absl::StatusOr<std::unique_ptr<PreparedTask>> Prepare(const v1::Lease& lease, RunControl&) const override {
    const std::string& payload = lease.payload();
    int64_t index = 0;
    auto [end, error] = std::from_chars(payload.data(), payload.data() + payload.size(), index);
    if (error != std::errc() || end != payload.data() + payload.size()) {
      return absl::InvalidArgumentError(fmt::format(
          "the payload of a one_hot task is an index in decimal, and task {} has something else", lease.task()));
    }
    return std::make_unique<InputlessTask>([spec = lease.aggregate(), index](RunControl&) {
      return OneHotContribution(spec, index, OneHotForm::kMeeting);
    });
  }
};

}  // namespace

ComputationRow OneHotComputation() {
  return {.name = kOneHotComputation, .data = {}, .make = [](const ComputationParts&) {
            return std::make_unique<OneHot>();
          }};
}

}  // namespace sheaf
