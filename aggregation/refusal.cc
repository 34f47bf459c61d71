#include "aggregation/refusal.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "absl/strings/cord.h"

namespace sheaf {
namespace {

constexpr char kPayload[] = "sheaf/refusal";

// What may be known of any contribution: nothing here is taken from one.
std::string_view TextOf(RefusalKind kind) {
  switch (kind) {
    case RefusalKind::kUnspecified:
      break;
    case RefusalKind::kNotParsed:
      return "it is not a serialised sheaf.v1.Contribution";
    case RefusalKind::kTooLarge:
      return "it is over the round's contribution_bytes_max";
    case RefusalKind::kTooManyParts:
      return "it has more parts than contribution_parts_max";
    case RefusalKind::kTooManyEntries:
      return "it has more rows than contribution_entries_max";
    case RefusalKind::kMetrics:
      return "its metrics are over metrics_max or metric_name_bytes_max";
    case RefusalKind::kRoundFull:
      return "the round's accumulators, or its own states, are over accumulator_bytes_max";
    case RefusalKind::kUpload:
      return "its upload was made for something else, or by another identity";
    case RefusalKind::kUploadUnfinished:
      return "it was handed in before FinishUpload";
    case RefusalKind::kUploadUnknown:
      return "it was handed in as an upload that was never begun for its lease";
    case RefusalKind::kUnknownOutput:
      return "it has an output that the round does not have";
    case RefusalKind::kRepeatedOutput:
      return "it occurs twice";
    case RefusalKind::kMissingOutput:
      return "it is missing";
    case RefusalKind::kWrongOperand:
      return "it is not of the form that its operator takes (dense, sparse or keyed)";
    case RefusalKind::kMixedOperands:
      return "some outputs hold states and some hold values";
    case RefusalKind::kWeight:
      return "its weight is not finite and greater than 0, or is set beside states";
    case RefusalKind::kNumClients:
      return "its number of clients is not possible";
    case RefusalKind::kState:
      return "its state is not one that an honest fold writes";
    case RefusalKind::kStale:
      return "a partial aggregate cannot be discounted by its staleness";
    case RefusalKind::kDType:
      return "a tensor has another dtype than the round declares";
    case RefusalKind::kShape:
      return "a tensor has another shape than the round declares";
    case RefusalKind::kNumBytes:
      return "a tensor has more or fewer bytes than its shape takes";
    case RefusalKind::kIndex:
      return "an index is out of range";
    case RefusalKind::kNonFinite:
      return "a value is not finite";
    case RefusalKind::kTooManyRows:
      return "it has more rows than nnz_max";
    case RefusalKind::kKeyType:
      return "its keys are of another type than the round declares";
    case RefusalKind::kKeyLength:
      return "a key is too long";
  }
  return "it was refused";
}

}  // namespace

std::string Refusal::Summary() const {
  return output.empty() ? std::string(TextOf(kind)) : fmt::format("output '{}': {}", output, TextOf(kind));
}

absl::Status RefusedAs(RefusalKind kind, std::string_view output, absl::Status status) {
  status.SetPayload(kPayload, absl::Cord(fmt::format("{} {}", static_cast<int>(kind), output)));
  return status;
}

Refusal RefusalOf(const absl::Status& status) {
  Refusal refusal{.told = std::string(status.message())};
  const auto payload = status.GetPayload(kPayload);
  if (!payload) return refusal;
  const std::string text(*payload);
  int kind = 0;
  const char* const end = std::from_chars(text.data(), text.data() + text.size(), kind).ptr;
  refusal.kind = static_cast<RefusalKind>(kind);
  refusal.output = text.substr(static_cast<size_t>(end - text.data()) + 1);
  return refusal;
}

}  // namespace sheaf
