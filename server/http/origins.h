// Origins: the web sites whose pages may call the server from a browser: those that the server's owner lists, and pages
// that the server itself serves. The server reads no cookies, so that a page can do no more than what it shows a token
// for; without tokens this is what keeps the pages of others out.
//
//   const Origins origins({"https://app.example"});
//   if (origins.Judge(request) == Origins::Verdict::kForeign) Refuse(request);
//
// A value that nothing changes: thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/http_message.h"

namespace sheaf {

class Origins {
 public:
  // Nobody's page, or this server's own; one on the list; another.
  enum class Verdict { kOwn, kListed, kForeign };

  explicit Origins(std::vector<std::string> listed) : listed_(std::move(listed)) {}

  Verdict Judge(const HttpRequest& request) const;
  bool empty() const { return listed_.empty(); }

 private:
  const std::vector<std::string> listed_;
};

// Fields of an answer to a page of `origin`, so that its browser shows the page the answer.
std::string AllowFields(std::string_view origin);
// Whether the request is a browser's question if a page may call (a preflight); and the answer for a path that takes
// `methods`, as the field `allow` has them.
bool IsPreflight(const HttpRequest& request);
HttpResponse PreflightAnswer(const HttpRequest& request, std::string_view methods);

}  // namespace sheaf
