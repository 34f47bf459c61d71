// RecordingTransport: notes in a History what passes through WorkService.Sync: the results handed in, and the verdicts
// that say one is counted.
//
//   RecordingTransport transport(wire, history);
//
// Put it next to the wire: a verdict counts as a promise when the server's answer arrives here, even if a fault above
// then loses it. Thread-safe. What it is given must outlive the last `done`.
#pragma once

#include <string_view>

#include "probe/history.h"
#include "sdk/cpp/client/transport.h"

namespace sheaf {

class RecordingTransport final : public Transport {
 public:
  RecordingTransport(Transport& inner, History& history) : inner_(inner), history_(history) {}

  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override;

 private:
  Transport& inner_;
  History& history_;
};

}  // namespace sheaf
