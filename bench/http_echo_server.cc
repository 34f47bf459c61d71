#include "bench/http_echo_server.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <cstdio>
#include <memory>
#include <utility>

namespace sheaf::bench {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Error = boost::system::error_code;

template <typename Stream>
class EchoConnection : public std::enable_shared_from_this<EchoConnection<Stream>> {
 public:
  explicit EchoConnection(Stream stream) : stream_(std::move(stream)) {}

  void Begin() {
    if constexpr (std::is_same_v<Stream, tcp::socket>) {
      Read();
    } else {
      stream_.async_handshake(asio::ssl::stream_base::server, [self = this->shared_from_this()](const Error& error) {
        if (!error) self->Read();
      });
    }
  }

 private:
  void Read() {
    request_ = {};
    http::async_read(stream_, buffer_, request_, [self = this->shared_from_this()](const Error& error, size_t) {
      if (!error) self->Write();
    });
  }
  void Write() {
    response_ = {http::status::ok, 11, std::move(request_.body())};
    response_.set(http::field::content_type, "application/proto");
    response_.prepare_payload();
    http::async_write(stream_, response_, [self = this->shared_from_this()](const Error& error, size_t) {
      if (!error) self->Read();
    });
  }

  Stream stream_;
  boost::beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response<http::string_body> response_;
};

class EchoServer {
 public:
  EchoServer(const std::string& certificate, const std::string& key) : is_encrypted_(!certificate.empty()) {
    if (!is_encrypted_) return;
    tls_.use_certificate_chain_file(certificate);
    tls_.use_private_key_file(key, asio::ssl::context::pem);
  }

  void Serve() {
    fmt::print("listening on 127.0.0.1:{}\n", acceptor_.local_endpoint().port());
    std::fflush(stdout);
    Accept();
    context_.run();
  }

 private:
  void Accept() {
    acceptor_.async_accept([this](const Error& error, tcp::socket socket) {
      if (!error) {
        socket.set_option(tcp::no_delay(true));
        if (is_encrypted_) {
          using Stream = asio::ssl::stream<tcp::socket>;
          std::make_shared<EchoConnection<Stream>>(Stream(std::move(socket), tls_))->Begin();
        } else {
          std::make_shared<EchoConnection<tcp::socket>>(std::move(socket))->Begin();
        }
      }
      Accept();
    });
  }

  const bool is_encrypted_;
  asio::io_context context_{1};
  asio::ssl::context tls_{asio::ssl::context::tls_server};
  tcp::acceptor acceptor_{context_, {asio::ip::address_v4::loopback(), 0}};
};

}  // namespace

void ServeHttpEcho(const std::string& certificate, const std::string& key) { EchoServer(certificate, key).Serve(); }

}  // namespace sheaf::bench
