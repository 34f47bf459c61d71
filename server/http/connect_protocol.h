// What the Connect protocol (https://connectrpc.com/docs/protocol) says of unary calls: how an error looks, what a
// timeout and a GET mean. Functions of values: thread-safe.
//
//   exchange->Answer(ErrorResponse(absl::NotFoundError("there is no round r-1")));   // 404 {"code":"not_found",...}
//   ConnectRequest call;
//   if (const auto error = ReadConnectRequest(request, call)) exchange->Answer(ErrorResponse(error->status));
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/http/byte_buffer.h"
#include "server/http/http_message.h"

namespace sheaf {

// "not_found"
std::string_view ConnectCode(absl::StatusCode code);
int HttpStatusOf(absl::StatusCode code);

// {"code":"resource_exhausted","message":"..."}; a retry hint (base/retry_hint.h) is a detail google.rpc.RetryInfo.
std::string ErrorJson(const absl::Status& status);
// That, with the status that Connect gives the code, and the hint as the fields `retry-after` (seconds) and
// kRetryHeader (milliseconds).
HttpResponse ErrorResponse(const absl::Status& status);
// The same, with a status that HTTP gives the occasion.
HttpResponse ErrorResponse(const absl::Status& status, int http_status);

enum class Codec { kProto, kJson };
// "application/proto"
std::string_view ContentTypeOf(Codec codec);

// One unary call as HTTP carries it.
struct ConnectRequest {
  Codec codec = Codec::kProto;
  // As it came: serialised, or JSON. Of a POST it is the request's body.
  ByteBuffer message;
  // Infinite: none.
  absl::Duration timeout = absl::InfiniteDuration();
};

// Takes the body of the request. An error is the answer: an unknown media type has the status 415, and says in
// `accept-post` what is known.
struct ConnectError {
  absl::Status status;
  // If not the one that Connect gives the code.
  int http_status = 0;
};
std::optional<ConnectError> ReadConnectRequest(HttpRequest& request, ConnectRequest& call);

}  // namespace sheaf
