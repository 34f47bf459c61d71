// HttpRequest and HttpResponse: what a route is asked, and what it answers. Values.
//
//   if (request.Header("content-type") == "application/proto") Parse(request.body.view());
//   exchange->Answer({.content_type = "text/plain", .body = "ok\n"});
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/byte_buffer.h"

namespace sheaf {

enum class HttpMethod { kGet, kHead, kPost, kOptions, kOther };

// The fields of a head, in one piece of memory.
class HttpHeaders {
 public:
  void Add(std::string_view name, std::string_view value);
  // The first of this name, which is in lower case; empty if there is none.
  std::string_view Find(std::string_view name) const;
  // How many there are of this name, or of all.
  size_t Count(std::string_view name) const;
  size_t size() const { return fields_.size(); }

 private:
  struct Field {
    uint32_t begin;
    uint32_t name_size;
    uint32_t value_size;
  };
  std::string_view NameOf(const Field& field) const { return {bytes_.data() + field.begin, field.name_size}; }
  std::string_view ValueOf(const Field& field) const {
    return {bytes_.data() + field.begin + field.name_size, field.value_size};
  }

  // Names, in lower case, each followed by its value.
  std::string bytes_;
  std::vector<Field> fields_;
};

struct HttpRequest {
  HttpMethod method = HttpMethod::kOther;
  // As they came: no path of ours has anything that would be escaped. The query is without its "?".
  std::string path;
  std::string query;
  // The field `host`, or what an absolute target says in its place.
  std::string host;
  HttpHeaders headers;
  ByteBuffer body;
  // The client wants to go on using the connection.
  bool keeps_alive = false;

  std::string_view Header(std::string_view name) const { return headers.Find(name); }
};

struct HttpResponse {
  int status = 200;
  // Of the body; a constant. Empty: there is none.
  std::string_view content_type;
  // Further fields, each with its line's end: "allow: POST\r\n".
  std::string headers;
  std::string body;
  // In place of `body`: in memory that outlives the server, which no connection copies.
  std::string_view constant_body;
  // Of the whole body, if more of it follows (HttpExchange::AnswerMore). None: what is here is all.
  std::optional<int64_t> body_bytes;

  std::string_view content() const { return body.empty() ? constant_body : body; }
  void ClearContent() {
    body.clear();
    constant_body = {};
  }
};

// "Not Found"
std::string_view HttpReason(int status);

}  // namespace sheaf
