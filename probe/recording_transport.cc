#include "probe/recording_transport.h"

#include <set>
#include <string>
#include <utility>

namespace sheaf {
namespace {

void NoteVerdicts(const v1::SyncResponse& response, const std::set<std::string>& contributions, History& history) {
  using V = v1::ResultVerdict;
  for (const V& verdict : response.verdicts()) {
    const bool is_promise = verdict.verdict() == V::ACCEPTED || verdict.verdict() == V::DUPLICATE;
    if (is_promise && contributions.contains(verdict.lease_token())) {
      history.Acknowledged(verdict.task(), verdict.lease_token());
    }
  }
}

}  // namespace

void RecordingTransport::CallMethod(std::string_view method, const google::protobuf::Message& request,
                                    google::protobuf::Message* response, const CallOptions& options, Done done) {
  if (method != kSync.name) return inner_.CallMethod(method, request, response, options, std::move(done));
  // The verdict on a failure or a release is ACCEPTED, too: only those on contributions are promises.
  std::set<std::string> contributions;
  for (const v1::TaskResult& result : static_cast<const v1::SyncRequest&>(request).results()) {
    if (result.has_failure() || result.has_release()) continue;
    history_.Attempted(result.task(), result.lease_token());
    contributions.insert(result.lease_token());
  }
  inner_.CallMethod(method, request, response, options,
                    [&history = history_, response, contributions = std::move(contributions),
                     done = std::move(done)](absl::Status status) {
                      if (status.ok()) NoteVerdicts(static_cast<v1::SyncResponse&>(*response), contributions, history);
                      done(std::move(status));
                    });
}

}  // namespace sheaf
