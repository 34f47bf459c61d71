#include "tests/fuzz/laws.h"

#include "base/check.h"
#include "tests/fuzz/specs.h"

namespace sheaf::fuzz {
namespace {

constexpr size_t kMessageMax = 4096;

bool IsUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto byte = static_cast<unsigned char>(text[i++]);
    const int following = byte < 0x80 ? 0 : byte < 0xc2 ? -1 : byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : byte < 0xf5 ? 3 : -1;
    if (following < 0) return false;
    for (int k = 0; k < following; ++k) {
      if (i == text.size() || (static_cast<unsigned char>(text[i++]) & 0xc0) != 0x80) return false;
    }
  }
  return true;
}

bool AreSame(const NamedTensor& a, const NamedTensor& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.data == b.data;
}

}  // namespace

void CheckRefusal(const absl::Status& status) {
  SHEAF_CHECK(absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status) || absl::IsDataLoss(status), "{}",
              status.ToString());
  const std::string_view message(status.message().data(), status.message().size());
  SHEAF_CHECK(!message.empty() && message.size() <= kMessageMax, "a refusal is empty or endless");
  SHEAF_CHECK(IsUtf8(message), "a refusal is not UTF-8");
}

void CheckSameReport(const absl::StatusOr<AggregateReport>& found, const absl::StatusOr<AggregateReport>& expected) {
  SHEAF_CHECK(found.status() == expected.status(), "{} against {}", found.status().ToString(),
              expected.status().ToString());
  if (!found.ok()) return;
  SHEAF_CHECK(found->tensors.size() == expected->tensors.size(), "other tensors");
  for (size_t i = 0; i < found->tensors.size(); ++i)
    SHEAF_CHECK(AreSame(found->tensors[i], expected->tensors[i]), "{}", found->tensors[i].name);
}

void CheckState(const v1::AggregateSpec& spec, const RoundAccumulator& accumulator, Provenance provenance) {
  const absl::StatusOr<AggregateReport> report = accumulator.Report();
  SHEAF_CHECK(report.ok() || absl::IsOutOfRange(report.status()), "{}", report.status().ToString());
  const std::string state = accumulator.Serialize();
  const absl::StatusOr<RoundAccumulator> restored = RoundAccumulator::Restore(spec, state);
  SHEAF_CHECK(restored.ok(), "{}", restored.status().ToString());
  SHEAF_CHECK(restored->Serialize() == state, "a restored state has other bytes");
  CheckSameReport(restored->Report(), report);
  if (accumulator.num_clients() == 0 || !IsExact(spec)) return;
  RoundAccumulator other = RoundAccumulator::Create(spec).value();
  const absl::StatusOr<ValidContribution> partial = other.Validate(accumulator.PartialAggregate());
  if (!partial.ok() && provenance == Provenance::kStates) return CheckRefusal(partial.status());
  SHEAF_CHECK(partial.ok(), "{}", partial.status().ToString());
  other.Accumulate(*partial);
  SHEAF_CHECK(other.OutputStates() == accumulator.OutputStates(), "a partial aggregate has other bytes");
  CheckSameReport(other.Report(), report);
}

}  // namespace sheaf::fuzz
