// Transcript: calls that were really made, and what happened around them, in a file that every language can read: one
// JSON object a line, a header first. README.md tells what each member means.
//
//   ASSIGN_OR_RETURN(Transcript transcript, Transcript::Parse(text));
//   for (const Exchange& exchange : transcript.exchanges) Parse(exchange.request_bytes);
//   std::string same_text = transcript.ToText();      // The same bytes again.
//
// A plain value. Times count from the beginning of the transcript.
#pragma once

#include <google/protobuf/message.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sheaf::golden {

// What the network did with a call.
enum class Delivery {
  kAnswered,
  // It never reached the server.
  kRequestLost,
  // The server answered, and its caller never heard.
  kAnswerLost,
  // The connection broke while the server kept the call; the server noticed.
  kConnectionLost,
  // It was refused at the door, by `status` and `trailing`: nothing behind the door heard of it.
  kTurnedAway,
};

struct Exchange {
  // Who called: "edge-1", "program", "operator".
  std::string from;
  // "sheaf.v1.WorkService/Sync"
  std::string method;
  // The metadata of that name; empty if there was none.
  std::string authorization;
  Delivery delivery = Delivery::kAnswered;
  absl::Duration sent;
  // When it reached the server, and when the server answered; infinite if it never did.
  absl::Duration arrived = absl::InfiniteDuration();
  absl::Duration answered = absl::InfiniteDuration();
  // When its caller had the answer, or knew that there would be none.
  absl::Duration received = absl::InfiniteDuration();
  std::string request_bytes;
  // What the server said, whether it was heard or not. UNAVAILABLE if it said nothing.
  absl::Status status;
  // With OK.
  std::string response_bytes;
  // Trailing metadata of ours, by name.
  std::map<std::string, std::string> trailing;
};

// What happened beside the calls.
struct Incident {
  absl::Duration at;
  // A worker's name, or "server".
  std::string who;
  // Of a worker: "starts", "is told to stop", "is cut off" (no call of it arrives, and none is written down), "is
  // connected again". Of the server: "is killed" (and is back at once).
  std::string what;
};

// How a worker was started.
struct WorkerStart {
  int concurrency = 1;
  // Of the randomness that paces it.
  uint64_t seed = 0;
  // Tasks of announced rounds that it prepares beside those. Since protocol 2.
  int prepare_ahead = 0;
};

struct Transcript {
  std::string name;
  // One sentence.
  std::string about;
  // The version of the software that spoke.
  std::string recorded_from;
  // "gRPC", or "virtual time": the real worker and the real handlers in one thread, without a socket.
  std::string over;
  std::map<std::string, WorkerStart> workers;
  // Limits of the server that are not its defaults, by name.
  std::map<std::string, int64_t> limits;
  // In the order in which they were sent.
  std::vector<Exchange> exchanges;
  std::vector<Incident> incidents;

  std::string ToText() const;
  // INVALID_ARGUMENT, naming the line, if it is not one; also if the JSON of a message and its bytes differ.
  static absl::StatusOr<Transcript> Parse(std::string_view text);
};

// The message that travels to a method ("sheaf.v1.WorkService/Sync"), and back; null if there is no such method.
std::unique_ptr<google::protobuf::Message> NewRequest(std::string_view method);
std::unique_ptr<google::protobuf::Message> NewResponse(std::string_view method);

// With the entries of maps in order: equal messages give equal bytes.
std::string Serialize(const google::protobuf::Message& message);

}  // namespace sheaf::golden
