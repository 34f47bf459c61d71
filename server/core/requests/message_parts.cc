#include "server/core/requests/message_parts.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <limits>

namespace sheaf {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// As deep as the parser goes.
constexpr int kDepthMax = 100;

class PartCounter {
 public:
  PartCounter(google::protobuf::io::ZeroCopyInputStream& stream, int64_t parts_max)
      : stream_(&stream), left_(parts_max) {
    stream_.SetTotalBytesLimit(std::numeric_limits<int>::max());
  }

  // False if the message is malformed, or has too many.
  bool Count(const Descriptor& type, int depth) {
    while (const uint32_t tag = stream_.ReadTag()) {
      const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      const WireFormatLite::WireType wire_type = WireFormatLite::GetTagWireType(tag);
      // No message of ours has one, and what is in it would have to be counted, too.
      if (wire_type == WireFormatLite::WIRETYPE_START_GROUP) left_ = -1;
      if (left_ < 0) return false;
      const bool is_delimited = wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
      const bool is_message = is_delimited && field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE;
      const bool is_listed_string =
          is_delimited && field != nullptr && field->is_repeated() &&
          (field->type() == FieldDescriptor::TYPE_STRING || field->type() == FieldDescriptor::TYPE_BYTES);
      // What the parser does not expect it keeps, each by itself.
      const bool is_expected =
          field != nullptr &&
          (wire_type == WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field->type())) ||
           (is_delimited && field->is_packable()));
      if ((is_message || is_listed_string || !is_expected) && --left_ < 0) return false;
      if (!(is_message ? Enter(*field->message_type(), depth) : WireFormatLite::SkipField(&stream_, tag))) return false;
    }
    return true;
  }
  bool has_too_many() const { return left_ < 0; }

 private:
  bool Enter(const Descriptor& type, int depth) {
    uint32_t length = 0;
    if (depth == kDepthMax || !stream_.ReadVarint32(&length) ||
        length > static_cast<uint32_t>(std::numeric_limits<int>::max())) {
      return false;
    }
    const auto limit = stream_.PushLimit(static_cast<int>(length));
    const bool is_whole = Count(type, depth + 1) && stream_.ConsumedEntireMessage();
    stream_.PopLimit(limit);
    return is_whole;
  }

  google::protobuf::io::CodedInputStream stream_;
  int64_t left_;
};

}  // namespace

absl::Status CheckParts(const Descriptor& type, google::protobuf::io::ZeroCopyInputStream& stream,
                        int64_t Limits::*limit, const Limits& limits) {
  PartCounter counter(stream, limits.*limit);
  counter.Count(type, 0);
  if (!counter.has_too_many()) return absl::OkStatus();
  return absl::ResourceExhaustedError(limits.Sentence(limit, fmt::format("the {} has more parts than", type.name())));
}

}  // namespace sheaf
