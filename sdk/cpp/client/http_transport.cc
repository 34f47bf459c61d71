#include "sdk/cpp/client/http_transport.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/retry_hint.h"
#include "base/version.h"
#include "sdk/cpp/client/channel_certificates.h"
#include "sdk/cpp/client/connect_answer.h"
#include "sdk/cpp/client/http_proxy.h"
#include "sdk/cpp/client/token_file.h"
#include "sdk/cpp/client/transport_errors.h"

namespace sheaf {
namespace {

using google::protobuf::Message;

// Of all heads of one call, those of a proxy included.
constexpr size_t kHeadBytesMax = 64 << 10;
// What is kept of an answer that is no message.
constexpr size_t kErrorBytesMax = 64 << 10;
// What the server is given beyond the call's own time, which we keep ourselves: so there is one who ends it.
constexpr absl::Duration kGrace = absl::Seconds(1);
// libcurl counts milliseconds in 32 bits, and Connect in ten digits. Nobody waits so long.
constexpr absl::Duration kLongestCall = absl::Hours(24 * 20);
// What one read of a socket may bring, and one write take.
constexpr long kBufferBytes = 256 << 10;
// One try to see whether the server is back.
constexpr absl::Duration kProbeTime = absl::Seconds(5);

// Rounded up: no call ends before its time.
long Milliseconds(absl::Duration duration) {
  return static_cast<long>(absl::ToInt64Milliseconds(absl::Ceil(duration, absl::Milliseconds(1))));
}

long Seconds(absl::Duration duration) { return std::max(static_cast<long>(absl::ToInt64Seconds(duration)), 1L); }

struct EasyCleanup {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct ListCleanup {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Easy = std::unique_ptr<CURL, EasyCleanup>;
using List = std::unique_ptr<curl_slist, ListCleanup>;

void Add(List& list, const std::string& line) {
  curl_slist* longer = curl_slist_append(list.get(), line.c_str());
  SHEAF_CHECK(longer != nullptr, "no memory for a field of HTTP");
  static_cast<void>(list.release());
  list.reset(longer);
}

template <typename Value>
void Set(CURL* easy, CURLoption option, Value value) {
  const CURLcode error = curl_easy_setopt(easy, option, value);
  SHEAF_CHECK(error == CURLE_OK, "libcurl does not take option {}: {}", static_cast<int>(option),
              curl_easy_strerror(error));
}

void SetBlob(CURL* easy, CURLoption option, const std::string& text) {
  if (text.empty()) return;
  curl_blob blob = {.data = const_cast<char*>(text.data()), .len = text.size(), .flags = CURL_BLOB_COPY};
  Set(easy, option, &blob);
}

void StartLibrary() {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  SHEAF_CHECK(started == CURLE_OK, "libcurl does not start: {}", curl_easy_strerror(started));
}

// Of one that no program gets that we start, and that notices a server that went without a word: as the pings of gRPC.
curl_socket_t OpenSocket(void* user, curlsocktype, curl_sockaddr* address) {
  const auto& options = *static_cast<const ChannelOptions*>(user);
  const int fd = ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  if (fd < 0 || (address->family != AF_INET && address->family != AF_INET6)) return fd;
  // Of what is not acknowledged, of probes, too.
  const auto unheard = static_cast<unsigned>(Milliseconds(options.keepalive_time + options.keepalive_timeout));
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unheard, sizeof unheard);
  return fd;
}

// "http://user:secret@proxy:3128" with another HOST:PORT.
std::string Through(const std::string& via, const std::string& proxy) {
  const size_t scheme = proxy.find("://");
  const size_t begin = scheme == std::string::npos ? 0 : scheme + 3;
  const size_t end = std::min(proxy.find_first_of("/?#", begin), proxy.size());
  const size_t at = proxy.rfind('@', end);
  return proxy.substr(0, at == std::string::npos || at < begin ? begin : at + 1) + via;
}

}  // namespace

class HttpTransport::Impl {
 public:
  Impl(ServerAddress server, const ChannelOptions& channel_options);
  ~Impl();

  void Call(std::string_view method, const Message& request, Message* response, const CallOptions& options, Done done);
  bool IsConnected();

  const std::string& url() const { return url_; }
  int64_t token_version() { return token_.version(); }

 private:
  // A call, from when it was asked for until its `done`; once it began, libcurl's, too.
  struct Exchange {
    std::string url;
    std::string request;
    Message* response;
    Done done;
    // The token that it shows.
    std::string shown;
    absl::Time deadline;

    Easy easy;
    List headers;
    std::array<char, CURL_ERROR_SIZE> error = {};
    ConnectAnswer answer;
    size_t head_bytes = 0;
    // Of the last head: its end was seen, and how it says where the body ends.
    bool is_head_whole = false;
    bool is_chunked = false;
    int64_t content_length = -1;
    int64_t body_bytes_max = 0;
    // Why it took no more of the answer.
    enum class Excess { kNone, kHead, kBody } excess = Excess::kNone;
  };
  using ExchangePtr = std::unique_ptr<Exchange>;

  static size_t OnHead(char* bytes, size_t one, size_t size, void* user);
  static size_t OnBody(char* bytes, size_t one, size_t size, void* user);

  void Post(ExchangePtr exchange) EXCLUDES(mutex_);
  void Run();
  // Those that were asked for since, as long as there is room for connections. False: it is over.
  bool TakeNew() EXCLUDES(mutex_);
  void BeginWaiting();
  void ExpireWaiting();
  void Begin(ExchangePtr exchange);
  absl::StatusOr<Easy> FindEasy(absl::Time now);
  Easy MakeEasy(const LoadedCertificates& loaded) const;
  void FinishDone();
  void Finish(ExchangePtr exchange, CURLcode code);
  absl::Status ResultOf(Exchange& exchange, CURLcode code) const;
  absl::Status Failure(const Exchange& exchange, CURLcode code) const;
  absl::Status ConnectionFailure(const Exchange& exchange, CURLcode code) const;
  AskedServer asked() const;

  const ServerAddress server_;
  const std::string url_;
  const ChannelOptions options_;
  const HttpProxy proxy_;
  const SystemClock clock_;
  TokenFile token_;

  // The thread's own.
  ChannelCertificates certificates_;
  int64_t certificates_version_ = 0;
  CURLM* multi_ = nullptr;
  List connect_to_;
  // With the options that all calls share, and those of the last one.
  std::vector<Easy> idle_;
  std::map<CURL*, ExchangePtr> open_;
  std::deque<ExchangePtr> waiting_;

  std::atomic<bool> is_connected_ = false;

  Mutex mutex_;
  std::vector<ExchangePtr> new_ GUARDED_BY(mutex_);
  bool is_over_ GUARDED_BY(mutex_) = false;
  bool is_probing_ GUARDED_BY(mutex_) = false;
  absl::Time next_probe_ GUARDED_BY(mutex_) = absl::InfinitePast();

  std::thread thread_;
};

HttpTransport::Impl::Impl(ServerAddress server, const ChannelOptions& channel_options)
    : server_(std::move(server)),
      url_(server_.url()),
      options_(channel_options),
      proxy_(ProxyFor(server_)),
      token_(options_.security.token_file),
      certificates_(options_.security, server_.protocol == ServerAddress::Protocol::kHttps) {
  StartLibrary();
  multi_ = curl_multi_init();
  SHEAF_CHECK(multi_ != nullptr, "no memory for connections");
  curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(options_.connections_max));
  if (!options_.via.empty()) Add(connect_to_, fmt::format("::{}", options_.via));
  thread_ = std::thread([this] { Run(); });
}

HttpTransport::Impl::~Impl() {
  {
    MutexLock lock(mutex_);
    is_over_ = true;
  }
  curl_multi_wakeup(multi_);
  thread_.join();
}

void HttpTransport::Impl::Call(std::string_view method, const Message& request, Message* response,
                               const CallOptions& options, Done done) {
  const size_t size = request.ByteSizeLong();
  if (size > static_cast<size_t>(options_.message_bytes_max)) {
    return done(TooMuch(fmt::format("a request of {} bytes, and {} are the most", size, options_.message_bytes_max)));
  }
  auto exchange = std::make_unique<Exchange>();
  exchange->url = fmt::format("{}/{}", url_, method);
  // By whoever calls: the request may be gone afterwards, and the thread has others to serve.
  if (!request.SerializeToString(&exchange->request)) {
    return done(absl::InternalError(fmt::format("the request to {} cannot be serialised", method)));
  }
  exchange->response = response;
  exchange->done = std::move(done);
  exchange->shown = token_.header();
  exchange->deadline = clock_.Now() + std::min(options.timeout, kLongestCall);
  Post(std::move(exchange));
}

void HttpTransport::Impl::Post(ExchangePtr exchange) {
  bool is_first = false;
  {
    MutexLock lock(mutex_);
    is_first = new_.empty();
    new_.push_back(std::move(exchange));
  }
  // Whoever came before has woken the thread, and the thread looks again before it sleeps.
  if (is_first && std::this_thread::get_id() != thread_.get_id()) curl_multi_wakeup(multi_);
}

bool HttpTransport::Impl::IsConnected() {
  if (is_connected_) return true;
  const absl::Time now = clock_.Now();
  {
    MutexLock lock(mutex_);
    if (is_probing_ || now < next_probe_) return false;
    is_probing_ = true;
    next_probe_ = now + options_.reconnect_backoff_max;
  }
  // Finish() says what came of it.
  auto probe = std::make_unique<Exchange>();
  probe->url = url_ + "/readyz";
  probe->response = nullptr;
  probe->deadline = now + kProbeTime;
  probe->done = [this](const absl::Status&) {
    MutexLock lock(mutex_);
    is_probing_ = false;
  };
  Post(std::move(probe));
  return false;
}

void HttpTransport::Impl::Run() {
  // OpenSSL writes to connections that the other side may have closed.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  while (TakeNew()) {
    BeginWaiting();
    int num_running = 0;
    curl_multi_perform(multi_, &num_running);
    FinishDone();
    ExpireWaiting();
    {
      // What a `done` asked for has woken nobody.
      MutexLock lock(mutex_);
      if (!new_.empty()) continue;
    }
    absl::Duration pause = absl::Minutes(1);
    if (open_.size() < static_cast<size_t>(options_.connections_max) && !waiting_.empty()) pause = absl::ZeroDuration();
    for (const ExchangePtr& exchange : waiting_) pause = std::min(pause, exchange->deadline - clock_.Now());
    // Less, if libcurl has something to do before.
    const long milliseconds = Milliseconds(std::max(pause, absl::ZeroDuration()));
    curl_multi_poll(multi_, nullptr, 0, static_cast<int>(milliseconds), nullptr);
  }
  // Ends their connections.
  for (auto& [easy, exchange] : open_) {
    curl_multi_remove_handle(multi_, easy);
    waiting_.push_back(std::move(exchange));
  }
  open_.clear();
  // A `done` may ask for more.
  while (!waiting_.empty()) {
    for (const ExchangePtr& exchange : std::exchange(waiting_, {})) {
      exchange->done(absl::CancelledError("the connection to the server is being closed"));
    }
    TakeNew();
  }
  // Here, where nobody is ended by saying goodbye to somebody who has gone.
  idle_.clear();
  curl_multi_cleanup(multi_);
}

bool HttpTransport::Impl::TakeNew() {
  std::vector<ExchangePtr> fresh;
  bool is_over = false;
  {
    MutexLock lock(mutex_);
    fresh.swap(new_);
    is_over = is_over_;
  }
  std::move(fresh.begin(), fresh.end(), std::back_inserter(waiting_));
  return !is_over;
}

void HttpTransport::Impl::BeginWaiting() {
  while (!waiting_.empty() && open_.size() < static_cast<size_t>(options_.connections_max)) {
    ExchangePtr next = std::move(waiting_.front());
    waiting_.pop_front();
    Begin(std::move(next));
  }
}

void HttpTransport::Impl::ExpireWaiting() {
  const absl::Time now = clock_.Now();
  std::deque<ExchangePtr> expired;
  for (ExchangePtr& exchange : waiting_) {
    if (exchange->deadline <= now) expired.push_back(std::move(exchange));
  }
  std::erase(waiting_, nullptr);
  for (const ExchangePtr& exchange : expired) {
    exchange->done(absl::DeadlineExceededError(
        fmt::format("all {} connections to {} were busy with other calls", options_.connections_max, url_)));
  }
}

// Those before this certificate are not used again.
absl::StatusOr<Easy> HttpTransport::Impl::FindEasy(absl::Time now) {
  const absl::StatusOr<ChannelCertificates::Current> current = certificates_.Look(now);
  if (!current.ok()) return Unreachable(url_, {current.status().message().data(), current.status().message().size()});
  if (current->version != certificates_version_) idle_.clear();
  certificates_version_ = current->version;
  if (idle_.empty()) return MakeEasy(*current->loaded);
  Easy easy = std::move(idle_.back());
  idle_.pop_back();
  return easy;
}

Easy HttpTransport::Impl::MakeEasy(const LoadedCertificates& loaded) const {
  Easy easy(curl_easy_init());
  SHEAF_CHECK(easy != nullptr, "no memory for a connection");
  CURL* const raw = easy.get();
  Set(raw, CURLOPT_NOSIGNAL, 1L);
  Set(raw, CURLOPT_PROTOCOLS_STR, "http,https");
  Set(raw, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  Set(raw, CURLOPT_USERAGENT, fmt::format("sheaf-cpp/{}", kVersion).c_str());
  Set(raw, CURLOPT_HEADERFUNCTION, &Impl::OnHead);
  Set(raw, CURLOPT_WRITEFUNCTION, &Impl::OnBody);
  Set(raw, CURLOPT_BUFFERSIZE, kBufferBytes);
  Set(raw, CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
  Set(raw, CURLOPT_CONNECTTIMEOUT_MS, Milliseconds(options_.connect_timeout));
  Set(raw, CURLOPT_TCP_KEEPALIVE, 1L);
  Set(raw, CURLOPT_TCP_KEEPIDLE, Seconds(options_.keepalive_time));
  Set(raw, CURLOPT_TCP_KEEPINTVL, Seconds(options_.keepalive_timeout));
  Set(raw, CURLOPT_OPENSOCKETFUNCTION, &OpenSocket);
  Set(raw, CURLOPT_OPENSOCKETDATA, &options_);
  // libcurl reads the environment by itself, but for these: HTTP_PROXY in capitals it would not, and what it chose it
  // would not say.
  Set(raw, CURLOPT_NOPROXY, "");
  const bool is_elsewhere = proxy_.is_used() && !options_.via.empty();
  Set(raw, CURLOPT_PROXY, (is_elsewhere ? Through(options_.via, proxy_.url) : proxy_.url).c_str());
  if (!proxy_.is_used() && connect_to_ != nullptr) Set(raw, CURLOPT_CONNECT_TO, connect_to_.get());
  Set(raw, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (!loaded.authorities.empty()) {
    // And no others: libcurl would add those of the system.
    Set(raw, CURLOPT_CAPATH, static_cast<const char*>(nullptr));
    SetBlob(raw, CURLOPT_CAINFO_BLOB, loaded.authorities);
  }
  SetBlob(raw, CURLOPT_SSLCERT_BLOB, loaded.certificate);
  SetBlob(raw, CURLOPT_SSLKEY_BLOB, loaded.key);
  return easy;
}

void HttpTransport::Impl::Begin(ExchangePtr exchange) {
  const absl::Time now = clock_.Now();
  const absl::Duration left = exchange->deadline - now;
  if (left <= absl::ZeroDuration()) return exchange->done(TimeIsOver());
  absl::StatusOr<Easy> easy = FindEasy(now);
  if (!easy.ok()) return exchange->done(easy.status());
  exchange->easy = *std::move(easy);
  CURL* const raw = exchange->easy.get();
  List& headers = exchange->headers;
  if (exchange->response == nullptr) {
    Set(raw, CURLOPT_HTTPGET, 1L);
    exchange->body_bytes_max = kErrorBytesMax;
  } else {
    // The request outlives the transfer.
    Set(raw, CURLOPT_POST, 1L);
    Set(raw, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(exchange->request.size()));
    Set(raw, CURLOPT_POSTFIELDS, exchange->request.data());
    Add(headers, "Content-Type: application/proto");
    Add(headers, "Connect-Protocol-Version: 1");
    Add(headers, fmt::format("Connect-Timeout-Ms: {}", Milliseconds(left + kGrace)));
    // Nobody waits to be told to go on: a call is either small, or let in by one that was.
    Add(headers, "Expect:");
    if (!exchange->shown.empty()) Add(headers, "Authorization: " + exchange->shown);
    exchange->body_bytes_max = options_.message_bytes_max;
  }
  Set(raw, CURLOPT_HTTPHEADER, headers.get());
  Set(raw, CURLOPT_URL, exchange->url.c_str());
  Set(raw, CURLOPT_TIMEOUT_MS, Milliseconds(left));
  Set(raw, CURLOPT_ERRORBUFFER, exchange->error.data());
  Set(raw, CURLOPT_HEADERDATA, exchange.get());
  Set(raw, CURLOPT_WRITEDATA, exchange.get());
  const CURLMcode added = curl_multi_add_handle(multi_, raw);
  SHEAF_CHECK(added == CURLM_OK, "libcurl does not take a call: {}", curl_multi_strerror(added));
  open_.emplace(raw, std::move(exchange));
}

size_t HttpTransport::Impl::OnHead(char* bytes, size_t, size_t size, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  exchange.head_bytes += size;
  if (exchange.head_bytes > kHeadBytesMax) {
    exchange.excess = Exchange::Excess::kHead;
    return 0;
  }
  const std::string_view line(bytes, size);
  ConnectAnswer& answer = exchange.answer;
  // Those before were a proxy's, or "100 Continue".
  if (line.starts_with("HTTP/") && answer.body.empty()) {
    answer = {};
    exchange.is_head_whole = false;
    exchange.is_chunked = false;
    exchange.content_length = -1;
  }
  // What follows a body are trailers, which say nothing.
  if (exchange.is_head_whole) return size;
  if (line == "\r\n" || line == "\n") exchange.is_head_whole = true;
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return size;
  const std::string name = absl::AsciiStrToLower({bytes, colon});
  const std::string value(absl::StripAsciiWhitespace({bytes + colon + 1, size - colon - 1}));
  if (name == "content-type") answer.content_type = value;
  if (name == "content-encoding") answer.content_encoding = value;
  if (name == "location") answer.location = value;
  if (name == "retry-after") answer.retry_after = value;
  if (name == kRetryHeader) answer.retry_pushback_ms = value;
  if (name == "transfer-encoding") exchange.is_chunked = absl::AsciiStrToLower(value) == "chunked";
  if (name == "content-length" && !absl::SimpleAtoi(value, &exchange.content_length)) exchange.content_length = -1;
  return size;
}

size_t HttpTransport::Impl::OnBody(char* bytes, size_t, size_t size, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  std::string& body = exchange.answer.body;
  if (body.empty()) {
    long status = 0;
    curl_easy_getinfo(exchange.easy.get(), CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) exchange.body_bytes_max = kErrorBytesMax;
    curl_off_t length = -1;
    curl_easy_getinfo(exchange.easy.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (length > 0) body.reserve(static_cast<size_t>(std::min<int64_t>(length, exchange.body_bytes_max)));
  }
  if (static_cast<int64_t>(body.size() + size) > exchange.body_bytes_max) {
    exchange.excess = Exchange::Excess::kBody;
    return 0;
  }
  body.append(bytes, size);
  return size;
}

void HttpTransport::Impl::FinishDone() {
  int num_left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &num_left)) {
    if (message->msg != CURLMSG_DONE) continue;
    // The message goes with its handle.
    const CURLcode code = message->data.result;
    CURL* const raw = message->easy_handle;
    auto found = open_.extract(raw);
    SHEAF_CHECK(!found.empty(), "libcurl ended a call that nobody began");
    curl_multi_remove_handle(multi_, raw);
    Finish(std::move(found.mapped()), code);
  }
}

void HttpTransport::Impl::Finish(ExchangePtr exchange, CURLcode code) {
  absl::Status result = ResultOf(*exchange, code);
  // A server that stops is not to be called, either. Of one that is late nothing is known.
  if (!absl::IsDeadlineExceeded(result)) is_connected_ = !absl::IsUnavailable(result);
  if (absl::IsUnauthenticated(result) && exchange->response != nullptr && token_.Refused(exchange->shown)) {
    result = WorthANewToken(std::move(result));
  }
  // The buffers of the call go with it, the handle stays.
  Set(exchange->easy.get(), CURLOPT_ERRORBUFFER, static_cast<char*>(nullptr));
  if (idle_.size() < static_cast<size_t>(options_.connections_max)) idle_.push_back(std::move(exchange->easy));
  exchange->done(std::move(result));
}

AskedServer HttpTransport::Impl::asked() const {
  // In a tunnel the proxy sees nothing.
  const bool sees_answers = proxy_.is_used() && server_.protocol == ServerAddress::Protocol::kHttp;
  return {.server = url_, .proxy = sees_answers ? proxy_.name() : "", .proxy_variable = proxy_.variable};
}

absl::Status HttpTransport::Impl::ResultOf(Exchange& exchange, CURLcode code) const {
  if (code != CURLE_OK) return Failure(exchange, code);
  long status = 0;
  curl_easy_getinfo(exchange.easy.get(), CURLINFO_RESPONSE_CODE, &status);
  exchange.answer.http_status = static_cast<int>(status);
  if (exchange.response == nullptr) return status == 200 ? absl::OkStatus() : Unreachable(url_, "it is not ready");
  if (absl::Status said = StatusOf(exchange.answer, asked()); !said.ok()) return said;
  // libcurl also takes an answer that ends with its connection, which nobody can tell from half of one.
  const bool is_whole = exchange.is_chunked || exchange.content_length == std::ssize(exchange.answer.body);
  if (!exchange.is_head_whole || !is_whole) {
    return Unreachable(url_, "the answer broke off, or does not say how long it is");
  }
  if (!exchange.response->ParseFromString(exchange.answer.body)) {
    return absl::InternalError(fmt::format("{} answered with bytes that are no message", exchange.url));
  }
  return absl::OkStatus();
}

absl::Status HttpTransport::Impl::Failure(const Exchange& exchange, CURLcode code) const {
  if (exchange.excess == Exchange::Excess::kHead) {
    return Unreachable(url_, fmt::format("its answer has a head of more than {} bytes", kHeadBytesMax));
  }
  if (exchange.excess == Exchange::Excess::kBody) {
    return TooMuch(fmt::format("an answer of more than {} bytes", exchange.body_bytes_max));
  }
  // Of time, the call's own goes before that of a connection.
  if (code == CURLE_OPERATION_TIMEDOUT && clock_.Now() >= exchange.deadline - absl::Milliseconds(1)) {
    return TimeIsOver();
  }
  return ConnectionFailure(exchange, code);
}

absl::Status HttpTransport::Impl::ConnectionFailure(const Exchange& exchange, CURLcode code) const {
  CURL* const raw = exchange.easy.get();
  long proxy_status = 0;
  curl_easy_getinfo(raw, CURLINFO_HTTP_CONNECTCODE, &proxy_status);
  AskedServer with_proxy = asked();
  with_proxy.proxy = proxy_.name();
  if (proxy_.is_used() && proxy_status >= 300) return ProxyRefusal(static_cast<int>(proxy_status), with_proxy);
  long error = 0;
  curl_easy_getinfo(raw, CURLINFO_OS_ERRNO, &error);
  // libcurl's own sentence; some failures have none.
  const std::string said = exchange.error[0] != '\0' ? exchange.error.data() : curl_easy_strerror(code);
  const auto unreachable = [this](const std::string& why) { return Unreachable(url_, why); };
  const std::string first = proxy_.is_used() ? "the proxy " + proxy_.name() : server_.target();
  const bool is_https = server_.protocol == ServerAddress::Protocol::kHttps;
  const bool is_alert = said.find("alert ") != std::string::npos;
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
      return unreachable(fmt::format("there is no host of this name: {}", server_.host));
    case CURLE_COULDNT_RESOLVE_PROXY:
      return unreachable(fmt::format("there is no host of the name of {}; check {}", first, proxy_.variable));
    case CURLE_COULDNT_CONNECT:
      return unreachable(fmt::format("{}{}{}", proxy_.is_used() ? first + ": " : "",
                                     error != 0 ? std::strerror(static_cast<int>(error)) : said,
                                     proxy_.is_used() ? "; check " + proxy_.variable : ""));
    case CURLE_OPERATION_TIMEDOUT:
      return unreachable(
          fmt::format("{} gave no connection within {}", first, absl::FormatDuration(options_.connect_timeout)));
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
      return unreachable(
          fmt::format("what listens there does not speak HTTP/1.1 ({}); give the port of sheafd --http, or, if this is "
                      "the port of gRPC, HOST:PORT without {}",
                      said, is_https ? "https://" : "http://"));
    case CURLE_PEER_FAILED_VERIFICATION:
      return unreachable(
          fmt::format("its certificate is not to be believed ({}); name the authorities that signed it with --tls-ca, "
                      "and the server by a name that the certificate has",
                      said));
    case CURLE_SSL_CONNECT_ERROR:
      if (is_alert) break;
      return unreachable(fmt::format(
          "TLS failed ({}); if what listens there speaks HTTP without TLS, give http:// and not https://, and "
          "if it speaks gRPC, HOST:PORT without https://",
          said));
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
      if (is_alert) break;
      if (exchange.head_bytes == 0) {
        return unreachable(
            fmt::format("it hung up without an answer ({}); {}", said,
                        is_https ? "it may want a certificate of yours (--tls-cert, --tls-key); if it speaks gRPC, "
                                   "give HOST:PORT without https://"
                                 : "if it speaks TLS, give https://"));
      }
      return unreachable(fmt::format("the answer broke off ({})", said));
    default:
      break;
  }
  if (is_alert) {
    return unreachable(
        fmt::format("it refused TLS ({}); it may want a certificate of yours (--tls-cert, --tls-key)", said));
  }
  return unreachable(said);
}

HttpTransport::HttpTransport(ServerAddress address, const ChannelOptions& options)
    : impl_(std::make_unique<Impl>(std::move(address), options)) {}

HttpTransport::~HttpTransport() = default;

void HttpTransport::CallMethod(std::string_view method, const Message& request, Message* response,
                               const CallOptions& options, Done done) {
  impl_->Call(method, request, response, options, std::move(done));
}

const std::string& HttpTransport::address() const { return impl_->url(); }

int64_t HttpTransport::token_version() { return impl_->token_version(); }

bool HttpTransport::IsConnected() { return impl_->IsConnected(); }

}  // namespace sheaf
