#include "sdk/cpp/client/broadcast_fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "aggregation/wire/safetensors.h"
#include "aggregation/wire/safetensors_patch.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// As many as servers take upon one another.
constexpr size_t kPatchesMax = 32;

// The digest of what `file` is a patch of; empty if it is none.
std::string BaseOf(std::string_view file) {
  const auto size = static_cast<int64_t>(file.size());
  const auto text = SafetensorsHeader::TextBytes(file, size, {});
  if (!text.ok()) return "";
  const auto header = SafetensorsHeader::Parse(file.substr(SafetensorsHeader::kPrefixBytes, *text), size, {});
  const std::string* base = header.ok() ? PatchBase(*header) : nullptr;
  return base == nullptr ? "" : *base;
}

}  // namespace

BroadcastFetch::BroadcastFetch(std::string digest, Options options)
    : digest_(std::move(digest)), options_(std::move(options)) {
  Fetch(digest_);
}

void BroadcastFetch::Fetch(const std::string& digest) {
  // Programs send patches up to the bytes of what they lie upon.
  const int64_t beyond = std::max<int64_t>(bytes_received_ - options_.bytes_max, 0);
  fetch_ = std::make_unique<BlobFetch>(digest, options_.bytes_max - beyond, options_.chunk_size);
}

void BroadcastFetch::OnDone(const absl::Status& call) {
  fetch_->OnDone(call);
  if (!fetch_->done()) return;
  status_ = fetch_->status().ok() ? OnFetched(fetch_->TakeBytes()) : fetch_->status();
  if (!status_.ok()) done_ = true;
}

absl::Status BroadcastFetch::OnFetched(std::string bytes) {
  bytes_received_ += static_cast<int64_t>(bytes.size());
  const std::string base = BaseOf(bytes);
  if (base.empty()) return PutTogether(std::move(bytes));
  patches_.push_back(std::move(bytes));
  if (patches_.size() > kPatchesMax) {
    return absl::DataLossError(fmt::format("broadcast {} is patched more than {} times", digest_, kPatchesMax));
  }
  const std::shared_ptr<const std::string> known = options_.find ? options_.find(base) : nullptr;
  if (known == nullptr) {
    Fetch(base);
    return absl::OkStatus();
  }
  if (const auto size = static_cast<int64_t>(known->size()); size > options_.bytes_max) {
    return absl::ResourceExhaustedError(fmt::format("the broadcast {} has {} bytes, and no more than {} are taken here",
                                                    digest_, size, options_.bytes_max));
  }
  return PutTogether(*known);
}

absl::Status BroadcastFetch::PutTogether(std::string whole) {
  file_ = std::move(whole);
  for (; !patches_.empty(); patches_.pop_back()) {
    const absl::Status applied = ApplySafetensorsPatch(patches_.back(), file_);
    if (!applied.ok()) {
      return absl::DataLossError(fmt::format("broadcast {}: {}", digest_, std::string(applied.message())));
    }
  }
  done_ = true;
  return absl::OkStatus();
}

}  // namespace sheaf
