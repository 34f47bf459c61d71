// HttpClient: one connection to an HTTP port of this machine, by hand: the bytes that a test writes, and the answers as
// they come.
//
//   HttpClient client(server.http_address());
//   const HttpAnswer answer = client.Ask("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
//   CHECK(answer.status == 200);
//   client.Send(Post("/sheaf.v1.WorkService/Sync", "application/proto", bytes));
//   CHECK(client.Receive().status == 200);
//
// With certificates it speaks TLS, to a server that is 127.0.0.1 by its certificate. An answer that does not come for a
// minute fails the test.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tls/certificates.h"

namespace sheaf {

struct HttpAnswer {
  int status = 0;
  // By their names in lower case.
  std::map<std::string, std::string> fields;
  std::string body;

  std::string field(const std::string& name) const {
    const auto found = fields.find(name);
    return found == fields.end() ? "" : found->second;
  }
};

// A whole request. `fields` are lines, each with its end.
inline std::string Request(std::string_view method, std::string_view target, std::string_view fields = "",
                           std::string_view body = "") {
  return fmt::format("{} {} HTTP/1.1\r\nhost: localhost\r\n{}{}\r\n{}", method, target,
                     body.empty() && method != "POST" ? "" : fmt::format("content-length: {}\r\n", body.size()), fields,
                     body);
}
inline std::string Post(std::string_view target, std::string_view content_type, std::string_view body,
                        std::string_view fields = "") {
  return Request("POST", target, fmt::format("content-type: {}\r\n{}", content_type, fields), body);
}

class HttpClient {
 public:
  explicit HttpClient(const std::string& address, const CertificateFiles& tls = {})
      : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    SetPatience(60);
    if (!tls.empty()) ShakeHands(tls);
  }
  HttpClient(HttpClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), session_(std::move(other.session_)), read_(std::move(other.read_)) {}
  ~HttpClient() {
    if (fd_ >= 0) ::close(fd_);
  }

  // False if the server has hung up.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = session_ == nullptr
                               ? ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL)
                               : SSL_write(session_.get(), bytes.data(), static_cast<int>(bytes.size()));
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // The next answer; status 0 if there is none because the server has hung up. `has_body`: not that of a HEAD.
  HttpAnswer Receive(bool has_body = true) {
    while (read_.find("\r\n\r\n") == std::string::npos) {
      if (!ReadMore()) return {};
    }
    const size_t end = read_.find("\r\n\r\n");
    HttpAnswer answer;
    REQUIRE(read_.starts_with("HTTP/1.1 "));
    answer.status = std::stoi(read_.substr(9, 3));
    for (size_t line = read_.find("\r\n") + 2; line < end + 2;) {
      const size_t line_end = read_.find("\r\n", line);
      const std::string text = read_.substr(line, line_end - line);
      std::string name = text.substr(0, text.find(": "));
      std::transform(name.begin(), name.end(), name.begin(), ::tolower);
      answer.fields[name] = text.substr(text.find(": ") + 2);
      line = line_end + 2;
    }
    read_.erase(0, end + 4);
    const bool says_length = answer.fields.contains("content-length");
    const size_t size = has_body && says_length ? std::stoul(answer.field("content-length")) : 0;
    while (read_.size() < size) REQUIRE(ReadMore());
    answer.body = read_.substr(0, size);
    read_.erase(0, size);
    return answer;
  }
  HttpAnswer Ask(std::string_view request) {
    Send(request);
    return Receive(!request.starts_with("HEAD "));
  }

  // The server hangs up within the patience, having said nothing more.
  bool IsHungUp() { return read_.empty() && !ReadMore(); }
  // Reads until the server hangs up; how many bytes came.
  int64_t DrainUntilHungUp() {
    auto count = static_cast<int64_t>(read_.size());
    for (read_.clear(); ReadMore(); read_.clear()) count += static_cast<int64_t>(read_.size());
    return count;
  }
  // Nothing comes for so long.
  bool IsSilent(int millis) {
    timeval time = {.tv_sec = millis / 1000, .tv_usec = millis % 1000 * 1000};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    char byte = 0;
    const bool is_silent = read_.empty() && ::recv(fd_, &byte, 1, MSG_PEEK) < 0 && (errno == EAGAIN || errno == EINTR);
    SetPatience(60);
    return is_silent;
  }
  void EndSending() { ::shutdown(fd_, SHUT_WR); }
  int fd() const { return fd_; }
  // The handshake went well, as far as a client knows.
  bool is_connected() const { return is_connected_; }

 private:
  void SetPatience(int seconds) {
    timeval time = {.tv_sec = seconds, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  }
  bool ReadMore() {
    char bytes[16384];
    const ssize_t count = session_ == nullptr ? ::recv(fd_, bytes, sizeof bytes, 0)
                                              : SSL_read(session_.get(), bytes, static_cast<int>(sizeof bytes));
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) FAIL("no answer for a minute");
    if (count <= 0) return false;
    read_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  void ShakeHands(const CertificateFiles& tls) {
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
    REQUIRE(SSL_CTX_load_verify_locations(context.get(), tls.authorities.c_str(), nullptr) == 1);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    if (!tls.certificate.empty()) {
      REQUIRE(SSL_CTX_use_certificate_chain_file(context.get(), tls.certificate.c_str()) == 1);
      REQUIRE(SSL_CTX_use_PrivateKey_file(context.get(), tls.key.c_str(), SSL_FILETYPE_PEM) == 1);
    }
    session_.reset(SSL_new(context.get()));
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session_.get()), "127.0.0.1");
    SSL_set_fd(session_.get(), fd_);
    is_connected_ = SSL_connect(session_.get()) == 1;
  }

  struct FreeSession {
    void operator()(SSL* session) const { SSL_free(session); }
  };
  int fd_;
  std::unique_ptr<SSL, FreeSession> session_;
  bool is_connected_ = true;
  std::string read_;
};

}  // namespace sheaf
