#include "sdk/cpp/client/blob_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "aggregation/wire/tensor.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// What a server gives that is not asked for less: its chunk_bytes_max, unless it was built otherwise.
constexpr int64_t kChunkBytes = 2 << 20;

absl::Status Malformed(const std::string& tensor, std::string_view what) {
  return absl::DataLossError(
      fmt::format("the selected rows of tensor \"{}\" did not arrive in order: {}", tensor, what));
}

// Bytes that a tensor of this shape has, or -1 if there is no such number.
int64_t ExpectedBytes(const v1::Tensor& tensor) {
  int64_t bytes = DTypeSize(tensor.dtype());
  for (int64_t size : tensor.shape()) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return -1;
  }
  return bytes;
}

}  // namespace

CallSequence::NextCall BlobFetch::Next() {
  auto request = std::make_shared<v1::ReadBlobRequest>();
  request->set_digest(digest_);
  request->set_offset(file_.offset());
  request->set_takes_patches(true);
  if (chunk_size_ != nullptr && chunk_size_->bytes_max() < kChunkBytes) request->set_length(chunk_size_->bytes_max());
  asked_bytes_ = request->length();
  response_ = std::make_shared<v1::ReadBlobResponse>();
  return {kReadBlob.name, std::move(request), response_};
}

bool BlobFetch::TakeLess() {
  return chunk_size_ != nullptr && chunk_size_->Shrink(asked_bytes_ > 0 ? asked_bytes_ : kChunkBytes);
}

void BlobFetch::OnDone(const absl::Status& call) {
  absl::Status status = call;
  if (status.ok() && response_->size_bytes() > bytes_max_) {
    status =
        absl::ResourceExhaustedError(fmt::format("the broadcast {} has {} bytes, and no more than {} are taken here",
                                                 digest_, response_->size_bytes(), bytes_max_));
  }
  if (status.ok()) status = file_.Add(response_->data(), response_->size_bytes());
  if (status.ok() && !file_.complete()) return;
  if (status.ok()) status = file_.Check(digest_);
  status_ = std::move(status);
  done_ = true;
}

RowFetch::RowFetch(std::string digest, std::vector<v1::RowSelection> selections, int64_t bytes_max, int64_t window_rows)
    : bytes_max_(bytes_max), window_rows_(window_rows), selections_(std::move(selections)) {
  request_.set_digest(std::move(digest));
  for (const v1::RowSelection& selection : selections_) tensors_.push_back({.name = selection.tensor()});
  done_ = tensors_.empty();
  AskForNextWindow();
}

void RowFetch::AskForNextWindow() {
  request_.clear_selections();
  request_.clear_cursor();
  first_selection_ = next_selection_;
  first_row_ = next_row_;
  int64_t room = window_rows_;
  while (room > 0 && next_selection_ < selections_.size()) {
    const v1::RowSelection& whole = selections_[next_selection_];
    const int left = whole.rows_size() - next_row_;
    const int count = whole.all() ? left : static_cast<int>(std::min<int64_t>(left, room));
    v1::RowSelection& part = *request_.add_selections();
    part.set_tensor(whole.tensor());
    part.set_all(whole.all());
    part.mutable_rows()->Add(whole.rows().begin() + next_row_, whole.rows().begin() + next_row_ + count);
    room -= std::max(count, 1);
    next_row_ += count;
    if (next_row_ < whole.rows_size()) break;
    ++next_selection_;
    next_row_ = 0;
  }
}

CallSequence::NextCall RowFetch::Next() {
  response_ = std::make_shared<v1::SelectRowsResponse>();
  return {kSelectRows.name, std::make_shared<v1::SelectRowsRequest>(request_), response_};
}

void RowFetch::OnDone(const absl::Status& call) {
  if (!call.ok()) return End(call);
  const int64_t bytes_before = bytes_received_;
  const int64_t newest_before = newest_selection_;
  for (v1::SelectRowsResponse::Piece& piece : *response_->mutable_pieces()) {
    absl::Status joined = Join(piece);
    if (!joined.ok()) return End(std::move(joined));
  }
  if (response_->next_cursor().empty()) {
    absl::Status complete = CheckWindowIsComplete();
    if (!complete.ok() || next_selection_ == selections_.size()) return End(std::move(complete));
    return AskForNextWindow();
  }
  // Rows may have no bytes; then the next page begins with the next selection.
  const bool has_moved = bytes_received_ > bytes_before || newest_selection_ > newest_before;
  if (!has_moved || response_->next_cursor() == request_.cursor()) {
    return End(absl::DataLossError("the server's answers bring no more of the selected rows; try again"));
  }
  request_.set_cursor(response_->next_cursor());
}

absl::Status RowFetch::Join(v1::SelectRowsResponse::Piece& piece) {
  if (piece.selection() < 0 || piece.selection() >= request_.selections_size()) {
    return Malformed(
        "?", fmt::format("a piece belongs to selection {} of {}", piece.selection(), request_.selections_size()));
  }
  const size_t selection = first_selection_ + static_cast<size_t>(piece.selection());
  NamedTensor& tensor = tensors_[selection];
  const v1::Tensor& rows = piece.rows();
  if (static_cast<int64_t>(selection) < newest_selection_)
    return Malformed(tensor.name, "a piece comes after those of a later selection");
  newest_selection_ = static_cast<int64_t>(selection);
  if (rows.shape().empty() || ExpectedBytes(rows) != static_cast<int64_t>(rows.data().size())) {
    return Malformed(tensor.name, "a piece has other bytes than its shape needs");
  }
  if (tensor.shape.empty()) {
    tensor.dtype = rows.dtype();
    tensor.shape.assign(rows.shape().begin(), rows.shape().end());
    tensor.shape[0] = 0;
  }
  const bool fits = rows.dtype() == tensor.dtype && rows.shape_size() == static_cast<int>(tensor.shape.size()) &&
                    std::equal(rows.shape().begin() + 1, rows.shape().end(), tensor.shape.begin() + 1);
  if (!fits) return Malformed(tensor.name, "its pieces have rows of different types");
  const int64_t expected = tensor.shape[0] - (selection == first_selection_ ? first_row_ : 0);
  if (piece.first_row() != expected) {
    return Malformed(tensor.name, fmt::format("row {} of the selection follows row {}", piece.first_row(), expected));
  }
  const v1::RowSelection& asked = request_.selections(piece.selection());
  if (!asked.all() && rows.shape(0) > asked.rows_size() - expected) {
    return Malformed(tensor.name, fmt::format("{} rows arrived after {}, and {} were asked for", rows.shape(0),
                                              expected, asked.rows_size()));
  }
  if (__builtin_add_overflow(tensor.shape[0], rows.shape(0), &tensor.shape[0])) {
    return Malformed(tensor.name, "it has more rows than there are numbers");
  }
  const auto bytes = static_cast<int64_t>(rows.data().size());
  if (bytes > bytes_max_ - bytes_received_) {
    return absl::ResourceExhaustedError(fmt::format(
        "the rows of broadcast {} have more than {} bytes, and no more are taken here", request_.digest(), bytes_max_));
  }
  bytes_received_ += bytes;
  if (tensor.data.empty()) {
    tensor.data = std::move(*piece.mutable_rows()->mutable_data());
  } else {
    tensor.data += rows.data();
  }
  return absl::OkStatus();
}

absl::Status RowFetch::CheckWindowIsComplete() const {
  for (int i = 0; i < request_.selections_size(); ++i) {
    const v1::RowSelection& asked = request_.selections(i);
    const NamedTensor& tensor = tensors_[first_selection_ + static_cast<size_t>(i)];
    // Also a selection of no rows has a piece, which says of what type they are.
    if (tensor.shape.empty()) return Malformed(asked.tensor(), "nothing of it arrived");
    const int64_t num_rows = tensor.shape[0] - (i == 0 ? first_row_ : 0);
    if (!asked.all() && num_rows != asked.rows_size()) {
      return Malformed(asked.tensor(), fmt::format("{} of {} arrived", num_rows, asked.rows_size()));
    }
  }
  return absl::OkStatus();
}

void RowFetch::End(absl::Status status) {
  status_ = std::move(status);
  done_ = true;
}

absl::StatusOr<UploadedBroadcast> UploadBroadcast(Transport& transport, Random& random, std::string_view bytes,
                                                  const std::string& population) {
  UploadSession session({.bytes = bytes, .request_id = random.Token(16), .population = population});
  RETURN_IF_ERROR(RunBlocking(transport, session));
  return UploadedBroadcast{.digest = session.digest(), .takes_patches = session.takes_patches()};
}

absl::StatusOr<std::string> UploadBlob(Transport& transport, Random& random, std::string_view bytes,
                                       const std::string& population) {
  ASSIGN_OR_RETURN(UploadedBroadcast uploaded, UploadBroadcast(transport, random, bytes, population));
  return std::move(uploaded.digest);
}

absl::StatusOr<ContributionUploadOutcome> UploadContribution(Transport& transport, UploadParams params) {
  UploadSession session(std::move(params));
  RETURN_IF_ERROR(RunBlocking(transport, session));
  return ContributionUploadOutcome{.verdict = session.verdict(), .upload_id = session.upload_id()};
}

absl::StatusOr<std::string> ReadBlob(Transport& transport, const std::string& digest, int64_t bytes_max) {
  BlobFetch fetch(digest, bytes_max);
  RETURN_IF_ERROR(RunBlocking(transport, fetch));
  return fetch.TakeBytes();
}

absl::StatusOr<std::vector<NamedTensor>> SelectRows(Transport& transport, const std::string& digest,
                                                    std::vector<v1::RowSelection> selections, int64_t bytes_max) {
  RowFetch fetch(digest, std::move(selections), bytes_max);
  RETURN_IF_ERROR(RunBlocking(transport, fetch));
  return fetch.TakeTensors();
}

}  // namespace sheaf
