#include "server/http/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/beast/http/basic_parser.hpp>
#include <utility>

namespace sheaf {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

constexpr int64_t kBeyondLimit = 1024;
constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Fields of which a second one would contradict the first.
constexpr auto kSingle = std::to_array<std::string_view>({
    "host",
    "content-length",
    "transfer-encoding",
    "content-type",
    "content-encoding",
    "authorization",
    "origin",
    "expect",
    "range",
    "connect-protocol-version",
    "connect-timeout-ms",
});

HttpMethod MethodOf(http::verb verb) {
  switch (verb) {
    case http::verb::get:
      return HttpMethod::kGet;
    case http::verb::head:
      return HttpMethod::kHead;
    case http::verb::post:
      return HttpMethod::kPost;
    case http::verb::options:
      return HttpMethod::kOptions;
    default:
      return HttpMethod::kOther;
  }
}

bool IsChunked(std::string_view coding) {
  return std::equal(coding.begin(), coding.end(), std::string_view("chunked").begin(),
                    std::string_view("chunked").end(), [](char a, char b) { return (a | 0x20) == b; });
}

}  // namespace

class RequestParser::Grammar final : public http::basic_parser<true> {
 public:
  explicit Grammar(const Bounds& bounds) : bounds_(bounds) {
    // Beast counts the first line and the fields apart, and so a head in pieces differently: here it is counted whole.
    header_limit(static_cast<uint32_t>(bounds.header_bytes_max + kBeyondLimit));
    body_limit(static_cast<uint64_t>(bounds.body_bytes_max));
  }

  size_t Take(std::string_view bytes) {
    if (refusal_ || is_done()) return 0;
    // Beast (1.74) asserts that it is never given less than the shortest end of such a body, once it has seen its
    // beginning. No body can be over before that.
    if (is_header_done() && chunked() && bytes.size() < kLastChunk.size()) return 0;
    error_code error;
    const bool had_head = is_header_done();
    const size_t taken = put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
    if (!had_head) head_bytes_ += static_cast<int64_t>(taken);
    const bool needs_more = error == http::error::need_more;
    const int64_t begun = static_cast<int64_t>(needs_more ? bytes.size() - taken : 0);
    // A line of a chunk, or the trailers, may be no longer than a head.
    if (!refusal_ && (had_head ? begun : head_bytes_ + begun) > bounds_.header_bytes_max) {
      Refuse(http::error::header_limit);
    } else if (error && !needs_more && !refusal_) {
      Refuse(error);
    }
    return taken;
  }

  // What Beast counts down is what it has seen: bodies of known length are counted here.
  std::span<char> Space() {
    if (!is_header_done() || is_done() || refusal_ || chunked()) return {};
    return request_.body.Space(static_cast<size_t>(*content_length()) - request_.body.size());
  }
  void Wrote(size_t count) {
    request_.body.Commit(count);
    if (request_.body.size() == *content_length()) is_whole_ = true;
  }
  bool is_done() const { return is_whole_; }

  std::optional<HttpRefusal> refusal_;
  HttpRequest request_;

 private:
  void Refuse(int status, std::string message) { refusal_ = {.status = status, .message = std::move(message)}; }
  void Refuse(error_code error) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return Refuse(431, fmt::format("the request's head is larger than http_header_bytes_max = {}; send fewer or "
                                     "smaller fields",
                                     bounds_.header_bytes_max));
    }
    if (error == http::error::body_limit) {
      return Refuse(413, fmt::format("the request's body is larger than request_bytes_max = {}; send less in one call",
                                     bounds_.body_bytes_max));
    }
    if (error == http::error::bad_version) {
      return Refuse(505, "this port speaks HTTP/1.1 only; gRPC has a port of its own (--listen)");
    }
    Refuse(400, fmt::format("the request is no HTTP/1.1: {}", error.message()));
  }
  // Ends the parsing; the refusal was made.
  static void Stop(error_code& error) { error = http::error::bad_value; }

  // --- Beast's ---
  void on_request_impl(http::verb verb, boost::beast::string_view, boost::beast::string_view target, int version,
                       error_code& error) override {
    request_.method = MethodOf(verb);
    version_ = version;
    std::string_view rest = View(target);
    // What proxies are sent, and servers must take, too.
    for (const std::string_view scheme : {"http://", "https://"}) {
      if (!rest.starts_with(scheme)) continue;
      rest.remove_prefix(scheme.size());
      const size_t authority = std::min(rest.find('/'), rest.size());
      request_.host = rest.substr(0, authority);
      rest.remove_prefix(authority);
      has_authority_ = true;
    }
    if (!rest.starts_with('/') && !(rest == "*" && request_.method == HttpMethod::kOptions)) {
      Refuse(400, "the request's target is no path");
      return Stop(error);
    }
    const size_t question = std::min(rest.find('?'), rest.size());
    request_.path = rest.substr(0, question);
    if (question < rest.size()) request_.query = rest.substr(question + 1);
  }
  void on_field_impl(http::field, boost::beast::string_view name, boost::beast::string_view value,
                     error_code& error) override {
    // Trailers are nobody's here.
    if (is_header_done()) return;
    if (static_cast<int64_t>(request_.headers.size()) == bounds_.headers_max) {
      Refuse(431,
             fmt::format("the request has more fields than http_headers_max = {}; send fewer", bounds_.headers_max));
      return Stop(error);
    }
    request_.headers.Add(View(name), View(value));
  }
  void on_header_impl(error_code& error) override {
    const HttpHeaders& headers = request_.headers;
    for (const std::string_view name : kSingle) {
      if (headers.Count(name) <= 1) continue;
      Refuse(400, fmt::format("the request has the field {} twice", name));
      return Stop(error);
    }
    if (version_ >= 11 && headers.Count("host") == 0) {
      Refuse(400, "the request has no field host");
      return Stop(error);
    }
    if (!has_authority_) request_.host = headers.Find("host");
    if (headers.Count("transfer-encoding") > 0 &&
        (headers.Count("content-length") > 0 || version_ < 11 || !IsChunked(headers.Find("transfer-encoding")))) {
      Refuse(400,
             "the request's length is not clear: send either content-length, or transfer-encoding: chunked and "
             "nothing else");
      return Stop(error);
    }
    if (headers.Find("content-length").find(',') != std::string_view::npos) {
      Refuse(400, "the request has several lengths");
      return Stop(error);
    }
    request_.keeps_alive = keep_alive();
  }
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(boost::beast::string_view bytes, error_code&) override {
    request_.body.Append(View(bytes));
    return bytes.size();
  }
  void on_chunk_header_impl(uint64_t, boost::beast::string_view, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, boost::beast::string_view bytes, error_code&) override {
    request_.body.Append(View(bytes));
    return bytes.size();
  }
  void on_finish_impl(error_code&) override { is_whole_ = true; }
  void on_response_impl(int, boost::beast::string_view, int, error_code&) override {}

  const Bounds bounds_;
  int64_t head_bytes_ = 0;
  int version_ = 0;
  bool has_authority_ = false;
  bool is_whole_ = false;
};

RequestParser::RequestParser(const Bounds& bounds) : grammar_(std::make_unique<Grammar>(bounds)) {}
RequestParser::~RequestParser() = default;

size_t RequestParser::Take(std::string_view bytes) { return grammar_->Take(bytes); }
std::span<char> RequestParser::Space() { return grammar_->Space(); }
void RequestParser::Wrote(size_t count) { grammar_->Wrote(count); }
bool RequestParser::has_head() const { return grammar_->is_header_done() && !grammar_->refusal_; }
bool RequestParser::is_done() const { return grammar_->is_done() && !grammar_->refusal_; }
const std::optional<HttpRefusal>& RequestParser::refusal() const { return grammar_->refusal_; }
HttpRequest& RequestParser::request() { return grammar_->request_; }

}  // namespace sheaf
