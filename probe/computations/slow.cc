#include "probe/computations/slow.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "absl/time/time.h"
#include "probe/one_hot.h"

namespace sheaf {
namespace {

// How often it looks up.
constexpr absl::Duration kSlice = absl::Milliseconds(50);

struct Payload {
  absl::Duration duration;
  std::optional<int64_t> index;
};

std::optional<Payload> ParsePayload(std::string_view text) {
  Payload payload;
  const size_t space = text.find(' ');
  const std::string duration(text.substr(0, space));
  if (!absl::ParseDuration(duration, &payload.duration) || payload.duration < absl::ZeroDuration()) return std::nullopt;
  if (space == std::string_view::npos) return payload;
  const std::string_view digits = text.substr(space + 1);
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), payload.index.emplace());
  if (error != std::errc() || end != digits.end()) return std::nullopt;
  return payload;
}

class Slow final : public Computation {
 public:
  explicit Slow(Waiter& waiter) : waiter_(waiter) {}
  std::string_view name() const override { return kSlowComputation; }
  int version() const override { return 1; }
  absl::StatusOr<std::unique_ptr<PreparedTask>> Prepare(const v1::Lease& lease, RunControl&) const override {
    const std::optional<Payload> payload = ParsePayload(lease.payload());
    if (!payload) {
      return absl::InvalidArgumentError(
          fmt::format("the payload of a slow task is a duration such as \"1.5s\", or that and an index such as "
                      "\"1.5s 17\", and task {} has something else",
                      lease.task()));
    }
    return std::make_unique<InputlessTask>([&waiter = waiter_, spec = lease.aggregate(), payload = *payload](
                                               RunControl& control) -> absl::StatusOr<v1::Contribution> {
      for (absl::Duration left = payload.duration; left > absl::ZeroDuration(); left -= kSlice) {
        if (control.is_cancelled()) return absl::CancelledError("told to stop");
        waiter.Wait(std::min(left, kSlice));
        control.ReportProgress();
      }
      if (!payload.index.has_value()) return ZeroContribution(spec);
      return OneHotContribution(spec, *payload.index, OneHotForm::kMeeting);
    });
  }

 private:
  Waiter& waiter_;
};

}  // namespace

ComputationRow SlowComputation() {
  return {.name = kSlowComputation, .data = {}, .make = [](const ComputationParts& parts) {
            return std::make_unique<Slow>(parts.waiter);
          }};
}

}  // namespace sheaf
