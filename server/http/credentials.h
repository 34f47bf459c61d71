// CredentialsOf: what whoever asks by HTTP shows of itself: the field `authorization`, or the certificate of the
// connection where there is no such field.
//
//   const auto caller = pipeline.Identify([&] { return CredentialsOf(request, exchange); });
//
// Refers to the request.
#pragma once

#include "server/calls/call_pipeline.h"
#include "server/http/exchange.h"
#include "server/http/http_message.h"

namespace sheaf {

inline Credentials CredentialsOf(const HttpRequest& request, const HttpExchange& exchange) {
  if (const std::string_view shown = request.Header("authorization"); !shown.empty()) return {.authorization = shown};
  return {.certificate_names = exchange.certificate_names()};
}

}  // namespace sheaf
