// Connection: one client's connection, from its first byte to its end: one request after the other, each read whole,
// served by its route, and answered before the next is looked at.
//
//   idle --first byte--> reading --whole--> answering --the route's answer--> writing --sent--> idle
//                                               ^---------- more is to come ----------'
//
// While a call waits, the connection keeps its socket and little else; it reads on, to notice when the client has gone
// (a client that ends its side is gone: its call is abandoned, and the answer still sent), and keeps a bounded part of
// what the client sends ahead. A request that cannot be read ends the connection behind its answer, because nobody
// knows where the next one would begin.
//
// Made by any thread, from then on only its loop's, but for Answer and Cut. It owns itself until it is closed; whoever
// is to answer keeps it alive, too.
#pragma once

#include <atomic>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/core/limits/limits.h"
#include "server/http/byte_buffer.h"
#include "server/http/byte_stream.h"
#include "server/http/event_loop.h"
#include "server/http/exchange.h"
#include "server/http/origins.h"
#include "server/http/request_parser.h"
#include "server/http/routes.h"
#include "server/http/tls_context.h"

namespace sheaf {

class Connection final : public HttpExchange, public LoopClient, public std::enable_shared_from_this<Connection> {
 public:
  // What all connections of a server share; outlives them.
  struct Shared {
    const RouteTable& routes;
    const Limits& limits;
    const Origins& origins;
    // Of all requests that are arriving.
    std::atomic<int64_t>& arriving_bytes;
    // Whether calls need no token; then only this machine's names are served.
    std::function<bool()> is_open;
    // A connection ends, with the address that it came from.
    std::function<void(const std::string& address)> on_end;
  };

  // Owns `fd`, which does not block. `address` is "192.0.2.1". Without a session nothing is encrypted.
  Connection(EventLoop& loop, const Shared& shared, int fd, TlsSession session, std::string address, std::string peer);
  ~Connection() override;

  // --- Of the exchange ---
  const std::string& peer() const override { return peer_; }
  std::vector<std::string> certificate_names() const override { return stream_.certificate_names(); }
  absl::Time Now() const override { return loop_.Now(); }
  void Watch(absl::Time until, std::function<void(End)> on_end) override;
  void Answer(HttpResponse response, std::function<void()> on_sent) override;
  void AnswerMore(std::string piece, std::function<void()> on_sent) override;
  void BreakOff(std::function<void()> on_ended) override;
  bool is_open() const override { return phase_ != Phase::kClosed; }
  std::function<void()> Cut() override;

  // --- Of the loop ---
  // The first time: begins.
  void OnPosted() override;
  void OnDeadline() override;
  void OnTimer() override;
  void OnStop(bool at_once) override;

 private:
  // Lingering: the last answer is sent, and what still comes is dropped, so that the client gets to read it.
  enum class Phase { kNew, kIdle, kReading, kAnswering, kWriting, kLingering, kClosed };
  enum Posted : uint8_t { kHasAnswer = 1, kIsCut = 2, kHasMore = 4, kIsBrokenOff = 8 };

  void Begin();
  void WaitToRead();
  void WaitToWrite();
  void OnReadable();
  // Counts what it holds of requests that are arriving; false if there is no room for it.
  bool CountArriving();
  // Where the next bytes go; empty: they must wait.
  std::span<char> Space();
  void Received(std::string_view bytes);
  // What came while nobody could look at it.
  void Continue();
  // Takes requests off the front of `bytes`, and says how much of it.
  size_t Proceed(std::string_view bytes);
  void OnHead();
  bool IsArriving() const { return phase_ == Phase::kIdle || phase_ == Phase::kReading; }
  // Why a request is not served, once its head is known.
  std::optional<HttpResponse> CheckHead(const HttpRequest& request);
  void Serve();
  // Answers by itself; the connection ends then, if the rest of the request would be in the way.
  void Refuse(HttpResponse response, bool is_last);
  void OnEndOfInput();
  void EndWatch();
  // False if there is nobody to answer any more: whoever answers has been told.
  bool BeginSending();
  void BeginAnswer();
  void BeginMore();
  void Write();
  void OnSent();
  void Linger();
  void Close();
  void SetDeadline(DeadlineKind kind, absl::Duration from_now);
  bool is_answering() const { return phase_ == Phase::kAnswering || phase_ == Phase::kWriting; }

  EventLoop& loop_;
  const Shared& shared_;
  const std::string address_;
  const std::string peer_;
  boost::asio::posix::stream_descriptor descriptor_;
  ByteStream stream_;
  // Itself, until it is closed.
  std::shared_ptr<Connection> self_;
  Deadlines<LoopClient>::Place deadline_;
  Phase phase_ = Phase::kNew;
  bool waits_to_read_ = false;
  bool waits_to_write_ = false;
  // Of the request under way.
  bool is_head_only_ = false;
  bool keeps_alive_ = true;
  bool has_seen_head_ = false;
  // The client sends nothing more.
  bool has_ended_ = false;
  bool is_stopping_ = false;
  // What the request under way is served by; null while it is refused.
  const Route* route_ = nullptr;
  std::unique_ptr<RequestParser> parser_;
  std::optional<HttpResponse> refusal_;
  // What came and is not parsed yet.
  ByteBuffer input_;
  int64_t counted_bytes_ = 0;
  size_t lingered_bytes_ = 0;
  // The page that asks, if it is one of the listed origins.
  std::string origin_;

  // Counts requests.
  std::atomic<int64_t> serial_ = 0;
  std::function<void(End)> on_end_;
  absl::Time expires_ = absl::InfiniteFuture();

  // Written by whoever answers, before the answer is posted.
  HttpResponse answer_;
  std::function<void()> on_sent_;
  std::atomic<uint8_t> posted_ = 0;
  std::atomic<int64_t> cut_serial_ = 0;

  // The answer under way: its head, and how much of head and body is sent.
  std::string head_;
  size_t sent_bytes_ = 0;
  // Of its body, behind what is being sent.
  int64_t missing_bytes_ = 0;
};

}  // namespace sheaf
