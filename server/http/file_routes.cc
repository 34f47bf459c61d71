#include "server/http/file_routes.h"

#include <fmt/format.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/trace_parent.h"
#include "proto/methods.h"
#include "server/calls/call.h"
#include "server/http/connect_protocol.h"
#include "server/http/credentials.h"
#include "server/http/file_part.h"

namespace sheaf {
namespace {

// Nobody's but who asked, and the same for good.
constexpr std::string_view kFileHeaders =
    "cache-control: private, max-age=31536000, immutable\r\naccept-ranges: bytes\r\nvary: authorization\r\n"
    "x-content-type-options: nosniff\r\n";

// Some bytes of a file, and what the method that read them says of all of it.
struct Piece {
  std::string bytes;
  int64_t size_bytes = 0;
  std::string digest;
};

// The files of one folder.
struct Folder {
  // "/files/aggregates/"
  std::string path;
  const MethodRow& method;
  // Serialised. A length of 0: as much as there is room for.
  std::function<std::string(const std::string& name, int64_t offset, int64_t length)> request;
  std::function<Piece(const std::string& name, const google::protobuf::Message& answer)> piece;
};

class Download;

// Reads one piece. Its owner is told, and ends it.
class PieceCall final : public Call {
 public:
  PieceCall(std::shared_ptr<Download> download, int64_t offset, int64_t length);

  std::function<void()> Cut() override;
  Piece& piece() { return piece_; }

 private:
  Credentials credentials() const override;
  std::string_view traceparent() const override;
  int64_t request_bytes() const override { return static_cast<int64_t>(request_.size()); }
  absl::Status Read(Reader read) const override {
    google::protobuf::io::ArrayInputStream stream(request_.data(), static_cast<int>(request_.size()));
    return read(stream);
  }
  void FreeRequest() override {}
  absl::StatusOr<int64_t> Write(const google::protobuf::Message& answer) override;
  void FreeAnswer() override { piece_ = {}; }
  void Send(const absl::Status& status) override;

  const std::shared_ptr<Download> download_;
  const std::string request_;
  Piece piece_;
};

// One request for a file, until its client has it. Calls and the exchange keep it.
class Download : public std::enable_shared_from_this<Download> {
 public:
  Download(CallPipeline& pipeline, const Folder& folder, HttpRequest request, ExchangePtr exchange)
      : pipeline_(pipeline),
        folder_(folder),
        request_(std::move(request)),
        name_(request_.path.substr(folder.path.size())),
        exchange_(std::move(exchange)) {}

  // In the loop's thread, as every further piece.
  void Begin() { ReadPiece(0, 1); }

  CallPipeline& pipeline() { return pipeline_; }
  const Folder& folder() const { return folder_; }
  const std::string& name() const { return name_; }
  const HttpRequest& request() const { return request_; }
  HttpExchange& exchange() { return *exchange_; }

  // In any thread.
  void OnPiece(PieceCall& call, const absl::Status& status) {
    if (std::exchange(is_answered_, true)) return OnMore(call, status);
    HttpResponse response = status.ok() ? Head(call.piece()) : ErrorResponse(status);
    exchange_->Answer(std::move(response), [self = shared_from_this(), &call] { self->OnSent(call); });
  }

 private:
  void ReadPiece(int64_t offset, int64_t length) {
    auto* call = new PieceCall(shared_from_this(), offset, length);
    // All that ends the call comes to this thread, which is busy with its beginning.
    exchange_->Watch(absl::InfiniteFuture(), [call](HttpExchange::End) { call->Cancel(); });
    call->Begin();
  }

  // The answer but for its body.
  HttpResponse Head(const Piece& first) {
    const std::string etag = fmt::format("\"{}\"", first.digest);
    const FilePart part = PartOf(request_, etag, first.size_bytes);
    HttpResponse response = {.status = part.status, .headers = fmt::format("etag: {}\r\n{}", etag, kFileHeaders)};
    if (part.status == 412) {
      return ErrorResponse(absl::FailedPreconditionError(fmt::format("the file is {}, not what if-match says", etag)),
                           part.status);
    }
    if (part.status == 416) {
      HttpResponse refusal = ErrorResponse(
          absl::OutOfRangeError(fmt::format("the file has {} bytes, and none of that range", first.size_bytes)),
          part.status);
      refusal.headers += fmt::format("content-range: bytes */{}\r\n", first.size_bytes);
      return refusal;
    }
    if (part.status == 304) return response;
    if (part.status == 206) {
      response.headers += fmt::format("content-range: bytes {}-{}/{}\r\n", part.offset, part.offset + part.length - 1,
                                      first.size_bytes);
    }
    response.headers += fmt::format("content-disposition: attachment; filename=\"{}.safetensors\"\r\n", name_);
    response.content_type = "application/octet-stream";
    response.body_bytes = part.length;
    if (request_.method == HttpMethod::kGet) {
      offset_ = part.offset;
      end_ = part.offset + part.length;
    }
    return response;
  }

  void OnMore(PieceCall& call, const absl::Status& status) {
    std::string bytes = std::move(call.piece().bytes);
    // Nothing where something was asked for: nobody would ever be done.
    if (!status.ok() || bytes.empty()) {
      end_ = offset_;
      return exchange_->BreakOff([self = shared_from_this(), &call] { self->OnSent(call); });
    }
    offset_ += static_cast<int64_t>(bytes.size());
    exchange_->AnswerMore(std::move(bytes), [self = shared_from_this(), &call] { self->OnSent(call); });
  }

  // In the loop's thread.
  void OnSent(PieceCall& call) {
    call.OnSent();
    if (offset_ < end_ && exchange_->is_open()) ReadPiece(offset_, end_ - offset_);
  }

  CallPipeline& pipeline_;
  const Folder& folder_;
  const HttpRequest request_;
  const std::string name_;
  const ExchangePtr exchange_;
  // One call is under way at a time, and hands these on to the next.
  bool is_answered_ = false;
  int64_t offset_ = 0;
  int64_t end_ = 0;
};

PieceCall::PieceCall(std::shared_ptr<Download> download, int64_t offset, int64_t length)
    : Call(download->pipeline(), download->folder().method, download->exchange().peer()),
      download_(std::move(download)),
      request_(download_->folder().request(download_->name(), offset, length)) {}

std::function<void()> PieceCall::Cut() { return download_->exchange().Cut(); }

Credentials PieceCall::credentials() const { return CredentialsOf(download_->request(), download_->exchange()); }

std::string_view PieceCall::traceparent() const { return download_->request().Header(TraceParent::kHeader); }

absl::StatusOr<int64_t> PieceCall::Write(const google::protobuf::Message& answer) {
  piece_ = download_->folder().piece(download_->name(), answer);
  return static_cast<int64_t>(piece_.bytes.size());
}

void PieceCall::Send(const absl::Status& status) { download_->OnPiece(*this, status); }

Route FolderRoute(CallPipeline& pipeline, Folder folder) {
  const std::string path = folder.path;
  return {.path = path,
          .methods = {HttpMethod::kGet},
          .check_head =
              [&pipeline](const HttpRequest& head, const HttpExchange& exchange) {
                return pipeline.Identify([&] { return CredentialsOf(head, exchange); }).status();
              },
          .serve =
              [&pipeline, folder = std::make_shared<const Folder>(std::move(folder))](HttpRequest& request,
                                                                                      const ExchangePtr& exchange) {
                std::make_shared<Download>(pipeline, *folder, std::move(request), exchange)->Begin();
              }};
}

const MethodRow& RowOf(const CallPipeline& pipeline, std::string_view name) {
  const MethodRow* row = pipeline.methods().Find(name);
  SHEAF_CHECK(row != nullptr, "no row for the method {}", name);
  return *row;
}

}  // namespace

std::vector<Route> FileRoutes(CallPipeline& pipeline) {
  std::vector<Route> routes;
  routes.push_back(FolderRoute(
      pipeline, {.path = "/files/aggregates/",
                 .method = RowOf(pipeline, kReadAggregate.name),
                 .request =
                     [](const std::string& name, int64_t offset, int64_t length) {
                       v1::ReadAggregateRequest request;
                       request.set_round(name);
                       request.set_offset(offset);
                       request.set_length(length);
                       return request.SerializeAsString();
                     },
                 .piece = [](const std::string& /*name*/, const google::protobuf::Message& answer) -> Piece {
                   const auto& read = static_cast<const v1::ReadAggregateResponse&>(answer);
                   return {.bytes = read.data(), .size_bytes = read.size_bytes(), .digest = read.digest()};
                 }}));
  routes.push_back(
      FolderRoute(pipeline, {.path = "/files/broadcasts/",
                             .method = RowOf(pipeline, kReadBlob.name),
                             .request =
                                 [](const std::string& name, int64_t offset, int64_t length) {
                                   v1::ReadBlobRequest request;
                                   request.set_digest(name);
                                   request.set_offset(offset);
                                   request.set_length(length);
                                   request.set_takes_patches(true);
                                   return request.SerializeAsString();
                                 },
                             .piece = [](const std::string& name, const google::protobuf::Message& answer) -> Piece {
                               const auto& read = static_cast<const v1::ReadBlobResponse&>(answer);
                               return {.bytes = read.data(), .size_bytes = read.size_bytes(), .digest = name};
                             }}));
  return routes;
}

}  // namespace sheaf
