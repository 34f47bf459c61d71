#include "server/core/contributions/reception.h"

#include <fmt/format.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "server/core/contributions/contribution_size.h"
#include "server/core/requests/message_parts.h"

namespace sheaf {
namespace {

// What a small one takes beside its bytes.
constexpr int64_t kOverheadBytes = 1 << 10;

// An error of the stores, as opposed to one of the worker's making.
bool IsOurs(const absl::Status& status) {
  return absl::IsInternal(status) || absl::IsDataLoss(status) || absl::IsResourceExhausted(status);
}

Refusal Refuse(RefusalKind kind, std::string told) {
  return Refusal{.told = std::move(told), .kind = kind, .output = {}};
}

// What a file could not give, as opposed to what is in it.
bool IsOfTheStore(const absl::Status& status) { return absl::IsInternal(status) || absl::IsDataLoss(status); }

// As the tensors declare it: whether they have as many is checked later.
int64_t NumEntries(const v1::Contribution& contribution) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t entries = 0;
  for (const v1::OutputValue& output : contribution.outputs()) {
    const auto& shape = output.has_sparse() ? output.sparse().indices().shape() : output.keyed().values().shape();
    if (!shape.empty()) entries += std::clamp<int64_t>(shape.Get(0), 0, kMost);
  }
  return entries;
}

Refusal TooLarge(const absl::Status& status) { return Refuse(RefusalKind::kTooLarge, std::string(status.message())); }

// Opens a finished upload of a legal size; else it is null.
absl::StatusOr<std::shared_ptr<const BlobView>> OpenUpload(PayloadStore& payloads, int64_t contribution_bytes_max,
                                                           const v1::TaskResult& result, Reception& reception) {
  absl::StatusOr<PayloadStore::Upload> upload = payloads.GetUpload(UploadId(result.upload_id()));
  if (absl::IsNotFound(upload.status())) return nullptr;
  RETURN_IF_ERROR(upload.status());
  reception.upload = *std::move(upload);
  if (!reception.upload->is_finished) return nullptr;
  const absl::Status size = CheckContributionSize(reception.upload->size_bytes, contribution_bytes_max);
  if (!size.ok()) {
    reception.refusal = TooLarge(size);
    return nullptr;
  }
  // It was checked when the upload was finished.
  reception.digest = reception.upload->digest;
  return payloads.OpenUpload(reception.upload->id);
}

// Reads the bytes of a result, or of its upload. The codes of BlobView, and those of `read`.
absl::Status ReadBytes(const std::string& bytes, const BlobView* file,
                       const std::function<absl::Status(std::string_view bytes)>& read) {
  return file == nullptr ? read(bytes) : file->Visit(read);
}

// RESOURCE_EXHAUSTED if there are too many.
absl::Status CheckContributionParts(std::string_view bytes, const Limits& limits) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  return CheckParts(*v1::Contribution::descriptor(), stream, &Limits::contribution_parts_max, limits);
}

// INVALID_ARGUMENT if it is malformed.
absl::Status Parse(std::string_view bytes, v1::Contribution& contribution) {
  const bool is_parsed =
      bytes.size() <= INT32_MAX && contribution.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  return is_parsed ? absl::OkStatus() : absl::InvalidArgumentError("it is not a serialised sheaf.v1.Contribution");
}

}  // namespace

Reception Receive(PayloadStore& payloads, const Limits& limits, ParallelFor& parallel, MemoryBudget& budget,
                  const ContributionValidator& validator, int64_t contribution_bytes_max,
                  const v1::TaskResult& result) {
  Reception reception;
  // Closed before this returns: that, too, may take as long as it is large.
  std::shared_ptr<const BlobView> file;
  const std::string& bytes = result.contribution();
  if (result.outcome_case() == v1::TaskResult::kUploadId) {
    absl::StatusOr<std::shared_ptr<const BlobView>> opened =
        OpenUpload(payloads, contribution_bytes_max, result, reception);
    if (!opened.ok() && IsOurs(opened.status())) {
      reception.error = opened.status();
    } else if (!opened.ok()) {
      reception.refusal = RefusalOf(opened.status());
    }
    if (!opened.ok() || *opened == nullptr) return reception;
    file = *std::move(opened);
  } else {
    reception.bytes = bytes;
  }
  const auto refuse = [&reception](Refusal refusal) {
    reception.refusal = std::move(refusal);
    return std::move(reception);
  };
  const int64_t size = file != nullptr ? file->size_bytes() : static_cast<int64_t>(bytes.size());
  reception.size_bytes = size;
  absl::Status allowed = file != nullptr ? absl::OkStatus() : CheckInlineSize(size, limits);
  allowed.Update(CheckContributionSize(size, contribution_bytes_max));
  if (!allowed.ok()) return refuse(TooLarge(allowed));
  std::optional<MemoryClaim> claim = budget.Claim(size + kOverheadBytes, limits.unfolded_bytes_max);
  if (!claim) {
    reception.error = limits.Refuse(
        &Limits::unfolded_bytes_max,
        fmt::format(
            "contributions that are being checked or wait to be folded take {} bytes of memory, and {} more would "
            "be over",
            budget.bytes(), size));
    return reception;
  }
  reception.claim = *std::move(claim);
  if (size > kUncountedBytesMax && size <= INT32_MAX) {
    const absl::Status status =
        ReadBytes(bytes, file.get(), [&](std::string_view all) { return CheckContributionParts(all, limits); });
    if (!status.ok() && !IsOfTheStore(status)) {
      return refuse(Refuse(RefusalKind::kTooManyParts, std::string(status.message())));
    }
    reception.error = status;
  }
  v1::Contribution contribution;
  if (reception.error.ok()) {
    const absl::Status parsed =
        ReadBytes(bytes, file.get(), [&](std::string_view all) { return Parse(all, contribution); });
    if (!parsed.ok() && !IsOfTheStore(parsed)) {
      return refuse(Refuse(RefusalKind::kNotParsed, std::string(parsed.message())));
    }
    reception.error = parsed;
  }
  if (!reception.error.ok()) return reception;
  if (const int64_t entries = NumEntries(contribution); entries > limits.contribution_entries_max) {
    return refuse(Refuse(RefusalKind::kTooManyEntries,
                         limits.Sentence(&Limits::contribution_entries_max,
                                         fmt::format("it has {} rows of sparse and keyed outputs, over", entries))));
  }
  absl::StatusOr<ValidContribution> valid = validator.Validate(std::move(contribution), parallel);
  if (!valid.ok()) return refuse(RefusalOf(valid.status()));
  // Zeros take next to nothing on their way, and room when they are folded: here, and after each restart.
  if (const int64_t state_bytes = valid->memory_bytes(); state_bytes > limits.accumulator_bytes_max) {
    return refuse(Refuse(RefusalKind::kRoundFull,
                         limits.Sentence(&Limits::accumulator_bytes_max,
                                         fmt::format("its states take {} bytes of memory, over", state_bytes),
                                         "combine fewer rows in one")));
  }
  reception.claim.Grow(valid->memory_bytes());
  validator.PrepareGrowthMax(*valid, limits.accumulator_bytes_max, parallel);
  if (reception.digest.empty()) reception.digest = Sha256Hex(bytes);
  reception.valid = *std::move(valid);
  return reception;
}

}  // namespace sheaf
