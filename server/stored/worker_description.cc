#include "server/stored/worker_description.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "server/stored/unreadable.h"
#include "server/stored/worker.pb.h"

namespace sheaf {
namespace {

// In both directions, as long as the API's messages and the stored one have the same fields.
template <typename From, typename To>
void CopyDescription(const From& from, To& to) {
  to.set_software_version(from.software_version());
  to.set_protocol_version(from.protocol_version());
  for (const auto& offer : from.computations()) {
    auto& copy = *to.add_computations();
    copy.set_name(offer.name());
    copy.set_version(offer.version());
  }
  *to.mutable_labels() = from.labels();
}

}  // namespace

std::string EncodeDescription(const v1::SyncRequest& request) {
  stored::v1::WorkerDescription stored;
  CopyDescription(request, stored);
  // In one form: the order of a map in memory is another in each message, and a worker that differs is stored anew.
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    stored.SerializeToCodedStream(&out);
  }
  return bytes;
}

absl::StatusOr<v1::Worker> DecodeDescription(const WorkerRecord& record) {
  stored::v1::WorkerDescription stored;
  if (!stored.ParseFromString(record.description)) {
    return Unreadable(fmt::format("the description of worker {} of population '{}'", record.name, record.population),
                      "it is no WorkerDescription");
  }
  v1::Worker worker;
  CopyDescription(stored, worker);
  return worker;
}

}  // namespace sheaf
