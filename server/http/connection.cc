#include "server/http/connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "base/retry_hint.h"
#include "server/http/connect_protocol.h"

namespace sheaf {
namespace {

// What a client may send ahead while its call is under way: the heads of some requests, or a small one whole.
constexpr size_t kReadAheadBytes = 16 << 10;
// Reads of one connection before others have their turn.
constexpr int kReadsPerTurn = 8;
// A body that is copied behind its head, where it would be a record of its own.
constexpr size_t kJoinedBytes = 8 << 10;
// How long, and how much, is dropped behind the last answer.
constexpr absl::Duration kLingerTime = absl::Seconds(5);
constexpr size_t kLingerBytes = 16 << 20;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

using Outcome = ByteStream::Outcome;

// Whether `host` (of HOST or HOST:PORT) can only be this machine.
bool IsThisMachine(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1) == "[::1]";
  host = host.substr(0, host.find(':'));
  return host == "localhost" || host.starts_with("127.");
}

HttpResponse Refusal(int status, absl::StatusCode code, const std::string& message) {
  return ErrorResponse(absl::Status(code, message), status);
}

absl::StatusCode CodeOf(int status) {
  return status == 413 || status == 431   ? absl::StatusCode::kResourceExhausted
         : status == 505 || status == 501 ? absl::StatusCode::kUnimplemented
                                          : absl::StatusCode::kInvalidArgument;
}

}  // namespace

Connection::Connection(EventLoop& loop, const Shared& shared, int fd, TlsSession session, std::string address,
                       std::string peer)
    : loop_(loop),
      shared_(shared),
      address_(std::move(address)),
      peer_(std::move(peer)),
      descriptor_(loop.context(), fd),
      stream_(fd, std::move(session)) {}

Connection::~Connection() { shared_.on_end(address_); }

// --- What others want of it -----------------------------------------------------------------------------------------

void Connection::Watch(absl::Time until, std::function<void(End)> on_end) {
  on_end_ = std::move(on_end);
  expires_ = until;
  if (expires_ != absl::InfiniteFuture()) loop_.SetTimer(expires_, this);
}

void Connection::EndWatch() {
  if (expires_ != absl::InfiniteFuture()) loop_.RemoveTimer(std::exchange(expires_, absl::InfiniteFuture()), this);
  on_end_ = nullptr;
}

void Connection::Answer(HttpResponse response, std::function<void()> on_sent) {
  answer_ = std::move(response);
  on_sent_ = std::move(on_sent);
  posted_.fetch_or(kHasAnswer);
  loop_.Post(shared_from_this());
}

void Connection::AnswerMore(std::string piece, std::function<void()> on_sent) {
  answer_ = {.body = std::move(piece)};
  on_sent_ = std::move(on_sent);
  posted_.fetch_or(kHasMore);
  loop_.Post(shared_from_this());
}

void Connection::BreakOff(std::function<void()> on_ended) {
  on_sent_ = std::move(on_ended);
  posted_.fetch_or(kIsBrokenOff);
  loop_.Post(shared_from_this());
}

std::function<void()> Connection::Cut() {
  return [self = shared_from_this(), serial = serial_.load()] {
    self->cut_serial_ = serial;
    self->posted_.fetch_or(kIsCut);
    self->loop_.Post(self);
  };
}

void Connection::OnPosted() {
  if (phase_ == Phase::kNew) return Begin();
  const uint8_t posted = posted_.exchange(0);
  if ((posted & kHasAnswer) != 0) BeginAnswer();
  if ((posted & kHasMore) != 0) BeginMore();
  if ((posted & kIsBrokenOff) != 0 && BeginSending()) Close();
  if ((posted & kIsCut) != 0 && is_answering() && cut_serial_ == serial_) Close();
}

void Connection::OnTimer() {
  expires_ = absl::InfiniteFuture();
  // It is told of one end at most.
  if (const auto on_end = std::exchange(on_end_, nullptr)) on_end(End::kExpired);
}

void Connection::OnStop(bool at_once) {
  is_stopping_ = true;
  if (at_once || phase_ == Phase::kIdle) Close();
}

void Connection::OnDeadline() {
  if (phase_ != Phase::kReading) return Close();
  Refuse(Refusal(408, absl::StatusCode::kDeadlineExceeded,
                 fmt::format("the request did not arrive within {}",
                             has_seen_head_ ? shared_.limits.Named(&Limits::request_time_max)
                                            : shared_.limits.Named(&Limits::handshake_timeout))),
         /*is_last=*/true);
}

void Connection::SetDeadline(DeadlineKind kind, absl::Duration from_now) {
  loop_.deadlines().Set(deadline_, kind, kind == DeadlineKind::kNone ? absl::InfiniteFuture() : Now() + from_now);
}

// --- Reading --------------------------------------------------------------------------------------------------------

void Connection::Begin() {
  self_ = shared_from_this();
  deadline_ = loop_.deadlines().Add(this);
  phase_ = Phase::kIdle;
  SetDeadline(DeadlineKind::kHead, shared_.limits.handshake_timeout);
  WaitToRead();
}

void Connection::WaitToRead() {
  if (waits_to_read_ || phase_ == Phase::kClosed) return;
  waits_to_read_ = true;
  if (stream_.HasPending()) {
    boost::asio::post(loop_.context(), [self = shared_from_this()] {
      self->waits_to_read_ = false;
      self->OnReadable();
    });
    return;
  }
  descriptor_.async_wait(descriptor_.wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
    self->waits_to_read_ = false;
    if (!error) self->OnReadable();
  });
}

void Connection::WaitToWrite() {
  if (waits_to_write_ || phase_ == Phase::kClosed) return;
  waits_to_write_ = true;
  descriptor_.async_wait(descriptor_.wait_write, [self = shared_from_this()](const boost::system::error_code& error) {
    self->waits_to_write_ = false;
    if (error) return;
    // A handshake has something to write, too.
    self->phase_ == Phase::kWriting ? self->Write() : self->OnReadable();
  });
}

std::span<char> Connection::Space() {
  if (phase_ == Phase::kReading && input_.size() == 0) {
    if (const std::span<char> body = parser_->Space(); !body.empty()) return body;
  }
  if (!is_answering()) return loop_.scratch();
  const size_t ahead = std::min(input_.size(), kReadAheadBytes);
  return loop_.scratch().first(std::min(loop_.scratch().size(), kReadAheadBytes - ahead));
}

void Connection::OnReadable() {
  for (int turn = 0; turn < kReadsPerTurn && phase_ != Phase::kClosed && !has_ended_; ++turn) {
    const std::span<char> space = Space();
    // Read on when the call is answered.
    if (space.empty()) return;
    const ByteStream::Result read = stream_.Read(space);
    if (read.outcome == Outcome::kBroken) return Close();
    if (read.outcome == Outcome::kEnd) return OnEndOfInput();
    if (read.outcome == Outcome::kWaitToRead) break;
    if (read.outcome == Outcome::kWaitToWrite) return WaitToWrite();
    if (space.data() == loop_.scratch().data()) {
      Received({space.data(), read.bytes});
    } else {
      parser_->Wrote(read.bytes);
      if (parser_->is_done()) Serve();
    }
    if (!CountArriving()) break;
    if (read.is_drained) break;
  }
  if (!has_ended_) WaitToRead();
}

bool Connection::CountArriving() {
  int64_t held = 0;
  if (IsArriving()) held += static_cast<int64_t>(input_.capacity());
  if (phase_ == Phase::kReading) held += static_cast<int64_t>(parser_->request().body.capacity());
  if (held == counted_bytes_) return true;
  const int64_t more = held - std::exchange(counted_bytes_, held);
  const int64_t all = shared_.arriving_bytes.fetch_add(more, std::memory_order_relaxed) + more;
  if (more <= 0 || all <= shared_.limits.receive_bytes_max) return true;
  const absl::Status refusal = shared_.limits.Refuse(
      &Limits::receive_bytes_max,
      fmt::format("the server is overloaded: requests that are arriving have {} bytes, over", all),
      "try again in a moment");
  Refuse(ErrorResponse(WithRetryAfter(refusal, absl::Seconds(1))), /*is_last=*/true);
  return false;
}

void Connection::Received(std::string_view bytes) {
  if (phase_ == Phase::kLingering) {
    lingered_bytes_ += bytes.size();
    if (lingered_bytes_ > kLingerBytes) Close();
    return;
  }
  if (is_answering()) return input_.Append(bytes);
  if (input_.size() == 0) return input_.Append(bytes.substr(Proceed(bytes)));
  input_.Append(bytes);
  Continue();
}

void Connection::Continue() {
  if (input_.size() == 0) return;
  const size_t taken = Proceed(input_.view());
  if (phase_ != Phase::kClosed) input_.DropFront(taken);
}

size_t Connection::Proceed(std::string_view bytes) {
  size_t taken = 0;
  while (phase_ == Phase::kIdle || phase_ == Phase::kReading) {
    if (phase_ == Phase::kIdle) {
      // Empty lines between requests are nobody's.
      while (taken < bytes.size() && (bytes[taken] == '\r' || bytes[taken] == '\n')) ++taken;
      if (taken == bytes.size()) break;
      phase_ = Phase::kReading;
      has_seen_head_ = false;
      refusal_.reset();
      parser_ = std::make_unique<RequestParser>(
          RequestParser::Bounds{.header_bytes_max = shared_.limits.http_header_bytes_max,
                                .headers_max = shared_.limits.http_headers_max,
                                .body_bytes_max = shared_.limits.request_bytes_max});
      SetDeadline(DeadlineKind::kHead, shared_.limits.handshake_timeout);
    }
    const size_t used = taken < bytes.size() ? parser_->Take(bytes.substr(taken)) : 0;
    taken += used;
    if (const auto& refusal = parser_->refusal()) {
      Refuse(Refusal(refusal->status, CodeOf(refusal->status), refusal->message), /*is_last=*/true);
      break;
    }
    if (!has_seen_head_ && parser_->has_head()) OnHead();
    if (phase_ == Phase::kClosed) break;
    if (parser_->is_done()) {
      Serve();
      break;
    }
    // A request that is refused is not waited for.
    if (used == 0 && refusal_) Refuse(*std::exchange(refusal_, std::nullopt), /*is_last=*/true);
    if (used == 0) break;
  }
  return taken;
}

void Connection::OnHead() {
  has_seen_head_ = true;
  const HttpRequest& request = parser_->request();
  SetDeadline(DeadlineKind::kBody, shared_.limits.request_time_max);
  route_ = shared_.routes.Find(request.path);
  origin_.clear();
  refusal_ = CheckHead(request);
  if (refusal_ || parser_->is_done()) return;
  // A stranger's body is not waited for.
  if (route_->check_head) {
    if (const absl::Status status = route_->check_head(request, *this); !status.ok()) {
      refusal_ = ErrorResponse(status);
      return;
    }
  }
  if (request.Header("expect").empty()) return;
  // So few bytes find room, or the client reads nothing.
  const ByteStream::Result sent = stream_.Write(kContinue, {});
  if (sent.bytes < kContinue.size()) Close();
}

std::optional<HttpResponse> Connection::CheckHead(const HttpRequest& request) {
  const Origins::Verdict verdict = shared_.origins.Judge(request);
  if (verdict == Origins::Verdict::kForeign) {
    return Refusal(
        403, absl::StatusCode::kPermissionDenied,
        fmt::format("pages of {} may not call this server; list the origin with --http-origins if they shall",
                    request.Header("origin").substr(0, 128)));
  }
  if (verdict == Origins::Verdict::kListed) origin_ = request.Header("origin");
  if (route_ == nullptr) {
    return Refusal(404, absl::StatusCode::kUnimplemented, fmt::format("there is no {}", request.path.substr(0, 128)));
  }
  if (IsPreflight(request)) return PreflightAnswer(request, route_->Allow());
  if (!route_->Takes(request.method)) {
    HttpResponse response =
        Refusal(405, absl::StatusCode::kUnimplemented, fmt::format("{} takes {}", route_->path, route_->Allow()));
    response.headers += fmt::format("allow: {}\r\n", route_->Allow());
    return response;
  }
  if (!route_->is_public && shared_.is_open() && !IsThisMachine(request.host)) {
    return Refusal(421, absl::StatusCode::kPermissionDenied,
                   fmt::format("a server without tokens is for its own machine: call it by localhost, not by {}; "
                               "behind a proxy, make tokens",
                               request.host.substr(0, 128)));
  }
  const std::string_view expect = request.Header("expect");
  if (!expect.empty() && expect != "100-continue") {
    return Refusal(417, absl::StatusCode::kInvalidArgument, "nothing but 100-continue can be expected");
  }
  return std::nullopt;
}

void Connection::Serve() {
  phase_ = Phase::kAnswering;
  ++serial_;
  SetDeadline(DeadlineKind::kNone, {});
  // What it was parsed with is not kept while it is served.
  const std::unique_ptr<RequestParser> parser = std::move(parser_);
  CountArriving();
  HttpRequest& request = parser->request();
  is_head_only_ = request.method == HttpMethod::kHead;
  keeps_alive_ = request.keeps_alive;
  if (!refusal_ && static_cast<int64_t>(request.body.size()) > route_->body_bytes_max) {
    refusal_ = Refusal(413, absl::StatusCode::kResourceExhausted,
                       fmt::format("{} takes a body of at most {} bytes", route_->path, route_->body_bytes_max));
  }
  if (refusal_) return Answer(*std::exchange(refusal_, std::nullopt), nullptr);
  route_->serve(request, shared_from_this());
}

void Connection::Refuse(HttpResponse response, bool is_last) {
  phase_ = Phase::kAnswering;
  ++serial_;
  SetDeadline(DeadlineKind::kNone, {});
  is_head_only_ = false;
  keeps_alive_ = !is_last;
  parser_.reset();
  refusal_.reset();
  CountArriving();
  Answer(std::move(response), nullptr);
}

void Connection::OnEndOfInput() {
  has_ended_ = true;
  if (!is_answering()) return Close();
  keeps_alive_ = false;
  if (const auto on_end = std::exchange(on_end_, nullptr)) on_end(End::kGone);
}

// --- Writing --------------------------------------------------------------------------------------------------------

bool Connection::BeginSending() {
  EndWatch();
  if (phase_ == Phase::kClosed) {
    answer_ = {};
    if (const auto on_sent = std::exchange(on_sent_, nullptr)) on_sent();
    return false;
  }
  phase_ = Phase::kWriting;
  sent_bytes_ = 0;
  // Answers of calls are in the books, which cut them off themselves; this is for all others.
  SetDeadline(DeadlineKind::kAnswer, shared_.limits.answer_time_max);
  return true;
}

void Connection::BeginMore() {
  if (!BeginSending()) return;
  missing_bytes_ -= static_cast<int64_t>(answer_.body.size());
  Write();
}

void Connection::BeginAnswer() {
  if (!BeginSending()) return;
  keeps_alive_ = keeps_alive_ && !is_stopping_;
  const bool has_body = answer_.status != 204 && answer_.status != 304;
  head_ = fmt::format("HTTP/1.1 {} {}\r\ndate: {}\r\n", answer_.status, HttpReason(answer_.status), loop_.Date());
  const int64_t body_bytes = answer_.body_bytes.value_or(static_cast<int64_t>(answer_.content().size()));
  if (has_body) fmt::format_to(std::back_inserter(head_), "content-length: {}\r\n", body_bytes);
  if (!answer_.content_type.empty()) {
    fmt::format_to(std::back_inserter(head_), "content-type: {}\r\n", answer_.content_type);
  }
  head_ += answer_.headers;
  if (!origin_.empty()) head_ += AllowFields(origin_);
  if (!shared_.origins.empty()) head_ += "vary: origin\r\n";
  if (!keeps_alive_) head_ += "connection: close\r\n";
  head_ += "\r\n";
  if (is_head_only_ || !has_body) answer_.ClearContent();
  missing_bytes_ = is_head_only_ || !has_body ? 0 : body_bytes - static_cast<int64_t>(answer_.content().size());
  if (stream_.is_encrypted() && answer_.content().size() <= kJoinedBytes) {
    // One record in place of two.
    head_ += answer_.content();
    answer_.ClearContent();
  }
  Write();
}

void Connection::Write() {
  const size_t all = head_.size() + answer_.content().size();
  while (sent_bytes_ < all) {
    const size_t of_head = std::min(sent_bytes_, head_.size());
    const ByteStream::Result sent =
        stream_.Write(std::string_view(head_).substr(of_head), answer_.content().substr(sent_bytes_ - of_head));
    if (sent.outcome == Outcome::kBroken) return Close();
    if (sent.outcome == Outcome::kWaitToWrite) return WaitToWrite();
    // Nobody renegotiates: what must come first comes while it is read.
    if (sent.outcome != Outcome::kDone) return Close();
    sent_bytes_ += sent.bytes;
  }
  OnSent();
}

void Connection::OnSent() {
  head_ = {};
  answer_ = {};
  const bool is_whole = missing_bytes_ == 0;
  if (!is_whole) {
    phase_ = Phase::kAnswering;
    SetDeadline(DeadlineKind::kNone, {});
  }
  if (const auto on_sent = std::exchange(on_sent_, nullptr)) on_sent();
  if (!is_whole) return;
  if (!keeps_alive_ || is_stopping_) return has_ended_ ? Close() : Linger();
  phase_ = Phase::kIdle;
  SetDeadline(DeadlineKind::kIdle, shared_.limits.connection_idle_max);
  Continue();
  WaitToRead();
}

void Connection::Linger() {
  phase_ = Phase::kLingering;
  input_.Clear();
  SetDeadline(DeadlineKind::kLinger, kLingerTime);
  stream_.EndWriting();
  WaitToRead();
}

void Connection::Close() {
  if (phase_ == Phase::kClosed) return;
  // Whoever it tells may be the last to know it.
  const std::shared_ptr<Connection> self = std::move(self_);
  const bool was_writing = phase_ == Phase::kWriting;
  phase_ = Phase::kClosed;
  loop_.deadlines().Remove(deadline_);
  if (const auto on_end = std::exchange(on_end_, nullptr)) on_end(End::kGone);
  EndWatch();
  boost::system::error_code ignored;
  descriptor_.close(ignored);
  parser_.reset();
  input_.Clear();
  CountArriving();
  head_ = {};
  if (!was_writing) return;
  answer_ = {};
  if (const auto on_sent = std::exchange(on_sent_, nullptr)) on_sent();
}

}  // namespace sheaf
