#include "bench/http_clients.h"

#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "sdk/cpp/client/connect_answer.h"

namespace sheaf::bench {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using Error = boost::system::error_code;

// As many connections of one address as there are ports for them, nearly.
constexpr int kConnectionsPerAddress = 25'000;

class HttpClient {
 public:
  virtual ~HttpClient() = default;
  // In the loop's thread.
  virtual void Ask(http::request<http::string_body> request, HttpClients::OnAnswer on_answer) = 0;
};

template <typename Stream>
class ClientOver final : public HttpClient {
 public:
  explicit ClientOver(Stream stream) : stream_(std::move(stream)) {}
  Stream& stream() { return stream_; }

  void Ask(http::request<http::string_body> request, HttpClients::OnAnswer on_answer) override {
    request_ = std::move(request);
    on_answer_ = std::move(on_answer);
    parser_.emplace();
    // Aggregates and pages of metrics have their own size.
    parser_->body_limit(std::numeric_limits<uint64_t>::max());
    http::async_write(stream_, request_, [this](const Error& error, size_t) {
      if (error) return Fail(error);
      http::async_read(stream_, buffer_, *parser_, [this](const Error& read_error, size_t) {
        if (read_error) return Fail(read_error);
        Answered();
      });
    });
  }

 private:
  void Fail(const Error& error) {
    // The loop ends with the calls that are open.
    if (error == asio::error::operation_aborted) return;
    std::exchange(on_answer_, nullptr)(absl::UnavailableError(error.message()));
  }
  void Answered() {
    http::response<http::string_body> response = parser_->release();
    absl::StatusOr<std::string> answer = std::move(response.body());
    if (response.result() != http::status::ok) {
      answer = StatusOf({.http_status = static_cast<int>(response.result_int()),
                         .content_type = std::string(response[http::field::content_type]),
                         .content_encoding = {},
                         .location = {},
                         .retry_after = std::string(response[http::field::retry_after]),
                         .retry_pushback_ms = std::string(response["grpc-retry-pushback-ms"]),
                         .body = *answer},
                        {.server = "the server", .proxy = {}, .proxy_variable = {}});
    }
    std::exchange(on_answer_, nullptr)(std::move(answer));
  }

  Stream stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  boost::optional<http::response_parser<http::string_body>> parser_;
  HttpClients::OnAnswer on_answer_;
};

}  // namespace

struct HttpClients::State {
  State(const std::string& address, const Options& options)
      : host(address.substr(0, address.rfind(':'))),
        server(asio::ip::make_address(host), static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)))),
        is_encrypted(!options.authority.empty()),
        authorization(options.token.empty() ? "" : "Bearer " + options.token) {
    if (!is_encrypted) return;
    tls.load_verify_file(options.authority);
    tls.set_verify_mode(asio::ssl::verify_peer);
  }

  std::unique_ptr<HttpClient> Connect() {
    tcp::socket socket(context, tcp::v4());
    const auto source = static_cast<asio::ip::address_v4::uint_type>(num_open() / kConnectionsPerAddress);
    // Ports are taken when it connects, so that each address has all of them.
    const int one = 1;
    setsockopt(socket.native_handle(), SOL_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    socket.bind({asio::ip::address_v4(asio::ip::address_v4::loopback().to_uint() + source), 0});
    socket.connect(server);
    socket.set_option(tcp::no_delay(true));
    if (!is_encrypted) return std::make_unique<ClientOver<tcp::socket>>(std::move(socket));
    asio::ssl::stream<tcp::socket> stream(std::move(socket), tls);
    stream.handshake(asio::ssl::stream_base::client);
    return std::make_unique<ClientOver<asio::ssl::stream<tcp::socket>>>(std::move(stream));
  }

  void Ask(int connection, http::request<http::string_body> request, OnAnswer on_answer) {
    request.set(http::field::host, host);
    if (!authorization.empty()) request.set(http::field::authorization, authorization);
    request.prepare_payload();
    HttpClient* client = nullptr;
    {
      MutexLock lock(mutex);
      client = clients[static_cast<size_t>(connection)].get();
    }
    asio::post(context, [client, request = std::move(request), on_answer = std::move(on_answer)]() mutable {
      client->Ask(std::move(request), std::move(on_answer));
    });
  }
  void Add(std::unique_ptr<HttpClient> client) EXCLUDES(mutex) {
    MutexLock lock(mutex);
    clients.push_back(std::move(client));
  }
  size_t num_open() EXCLUDES(mutex) {
    MutexLock lock(mutex);
    return clients.size();
  }

  const std::string host;
  const tcp::endpoint server;
  const bool is_encrypted;
  const std::string authorization;
  asio::ssl::context tls{asio::ssl::context::tls_client};
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  Mutex mutex;
  std::vector<std::unique_ptr<HttpClient>> clients GUARDED_BY(mutex);
  std::thread thread{[this] { context.run(); }};
};

HttpClients::HttpClients(const std::string& address, const Options& options)
    : state_(std::make_unique<State>(address, options)) {}

HttpClients::~HttpClients() {
  state_->context.stop();
  state_->thread.join();
}

absl::Status HttpClients::Open(int count) {
  try {
    for (int i = 0; i < count; ++i) state_->Add(state_->Connect());
  } catch (const boost::system::system_error& error) {
    return absl::UnavailableError(fmt::format("connection {} was not made: {}", state_->num_open() + 1, error.what()));
  }
  return absl::OkStatus();
}

void HttpClients::Post(int connection, std::string_view method, std::string body, OnAnswer on_answer) {
  http::request<http::string_body> request(http::verb::post, fmt::format("/{}", method), 11);
  request.set(http::field::content_type, "application/proto");
  request.body() = std::move(body);
  state_->Ask(connection, std::move(request), std::move(on_answer));
}

void HttpClients::Get(int connection, std::string_view path, OnAnswer on_answer) {
  state_->Ask(connection, {http::verb::get, std::string(path), 11}, std::move(on_answer));
}

}  // namespace sheaf::bench
