// LittleHttpServer: a server of HTTP/1.1 that does with each request what the test says, byte by byte.
//
//   LittleHttpServer server([](const LittleHttpServer::Request& request, LittleHttpServer::Peer& peer) {
//     peer.Send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n");      // And not a byte more:
//     peer.WaitForEnd();                                              // until the client hangs up.
//   });
//   const std::string url = server.address();                       // For a transport.
//
// Each connection has a thread, which all end with this object.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <thread>

#include "base/mutex.h"

namespace sheaf {

class LittleHttpServer {
 public:
  struct Request {
    // The value of a field; empty if there is none.
    std::string Header(std::string_view name) const;

    // "POST /path HTTP/1.1" and all fields.
    std::string head;
    std::string body;
  };

  // The other side of a connection.
  class Peer {
   public:
    explicit Peer(int fd) : fd_(fd) {}
    // False if it has gone.
    bool Send(std::string_view bytes);
    // An answer with the head that it needs. `fields`: lines, each with its end.
    bool Answer(std::string_view status, std::string_view content_type, std::string_view body,
                std::string_view fields = "");
    // Until it hangs up, or the server ends. What comes is dropped.
    void WaitForEnd();
    // Ends the connection once the request was handled.
    void HangUp() { is_over_ = true; }
    bool is_over() const { return is_over_; }

   private:
    const int fd_;
    bool is_over_ = false;
  };

  using Handler = std::function<void(const Request& request, Peer& peer)>;

  // `port` 0: a free one. With `reads_body` false, the handler is called after the head, and the body stays unread.
  explicit LittleHttpServer(Handler handler, int port = 0, bool reads_body = true);
  ~LittleHttpServer();

  int port() const { return port_; }
  // "http://127.0.0.1:PORT".
  std::string address() const;
  int num_connections() const { return num_connections_; }

 private:
  void Accept();
  void Serve(int fd);
  bool Read(int fd, std::string& buffer, Request& request) const;

  const Handler handler_;
  const bool reads_body_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> num_connections_ = 0;
  std::atomic<bool> is_over_ = false;
  Mutex mutex_;
  std::list<int> open_ GUARDED_BY(mutex_);
  std::list<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace sheaf
