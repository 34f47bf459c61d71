#include "tests/golden/transcript.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/status_macros.h"

namespace sheaf::golden {
namespace {

using google::protobuf::Message;
using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<Delivery, const char*>, 5> kDeliveries = {{
    {Delivery::kAnswered, "answered"},
    {Delivery::kRequestLost, "request lost"},
    {Delivery::kAnswerLost, "answer lost"},
    {Delivery::kConnectionLost, "connection lost"},
    {Delivery::kTurnedAway, "turned away"},
}};

std::unique_ptr<Message> New(std::string_view method, bool is_request) {
  std::string path(method);
  std::replace(path.begin(), path.end(), '/', '.');
  const auto* found = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(path);
  if (found == nullptr) return nullptr;
  auto* factory = google::protobuf::MessageFactory::generated_factory();
  return std::unique_ptr<Message>(
      factory->GetPrototype(is_request ? found->input_type() : found->output_type())->New());
}

// Null if the bytes are none of that message.
Json ToJson(std::unique_ptr<Message> message, const std::string& bytes) {
  if (message == nullptr || !message->ParseFromString(bytes)) return nullptr;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(*message, &text, options).ok()) return nullptr;
  return Json::parse(text);
}

// Whether the JSON says what the bytes say.
bool Agree(const Json& json, std::unique_ptr<Message> message, const std::string& bytes) {
  if (json.is_null()) return true;
  if (message == nullptr || !message->ParseFromString(bytes)) return false;
  std::unique_ptr<Message> other(message->New());
  if (!google::protobuf::util::JsonStringToMessage(json.dump(), other.get()).ok()) return false;
  return Serialize(*message) == Serialize(*other);
}

std::string Base64(const std::string& bytes) { return absl::Base64Escape(bytes); }

std::string FromBase64(const Json& json, const char* member) {
  std::string bytes;
  if (json.contains(member) && !absl::Base64Unescape(json[member].get<std::string>(), &bytes)) {
    throw std::invalid_argument(fmt::format("{} is not base64", member));
  }
  return bytes;
}

// Milliseconds: what a person reads and what is exact enough.
int64_t ToMillis(absl::Duration duration) { return absl::ToInt64Milliseconds(duration); }

void PutTime(Json& json, const char* member, absl::Duration time) {
  if (time != absl::InfiniteDuration()) json[member] = ToMillis(time);
}

absl::Duration TimeOf(const Json& json, const char* member) {
  return json.contains(member) ? absl::Milliseconds(json[member].get<int64_t>()) : absl::InfiniteDuration();
}

Json LineOf(const Exchange& exchange, size_t number) {
  Json line;
  line["call"] = number;
  line["from"] = exchange.from;
  line["method"] = exchange.method;
  if (!exchange.authorization.empty()) line["authorization"] = exchange.authorization;
  for (const auto& [delivery, name] : kDeliveries) {
    if (delivery == exchange.delivery) line["delivery"] = name;
  }
  PutTime(line, "sent_ms", exchange.sent);
  PutTime(line, "arrived_ms", exchange.arrived);
  PutTime(line, "answered_ms", exchange.answered);
  PutTime(line, "received_ms", exchange.received);
  line["request"] = ToJson(NewRequest(exchange.method), exchange.request_bytes);
  line["request_bytes"] = Base64(exchange.request_bytes);
  const bool is_turned_away = exchange.delivery == Delivery::kTurnedAway;
  if (exchange.answered == absl::InfiniteDuration() && !is_turned_away) return line;
  line["status"] = absl::StatusCodeToString(exchange.status.code());
  if (!exchange.trailing.empty()) line["trailing"] = exchange.trailing;
  if (!exchange.status.ok()) {
    line["message"] = std::string(exchange.status.message());
  } else {
    line["response"] = ToJson(NewResponse(exchange.method), exchange.response_bytes);
    line["response_bytes"] = Base64(exchange.response_bytes);
  }
  return line;
}

absl::StatusCode CodeOf(const std::string& name) {
  for (int code = 0; code <= 16; ++code) {
    if (absl::StatusCodeToString(static_cast<absl::StatusCode>(code)) == name) {
      return static_cast<absl::StatusCode>(code);
    }
  }
  throw std::invalid_argument(fmt::format("there is no status {}", name));
}

Exchange ExchangeOf(const Json& line) {
  Exchange exchange{.from = line.at("from"), .method = line.at("method")};
  exchange.authorization = line.value("authorization", "");
  const auto* delivery = std::find_if(kDeliveries.begin(), kDeliveries.end(),
                                      [&](const auto& row) { return row.second == line.at("delivery"); });
  if (delivery == kDeliveries.end()) throw std::invalid_argument("delivery is none that there is");
  exchange.delivery = delivery->first;
  exchange.sent = absl::Milliseconds(line.at("sent_ms").get<int64_t>());
  exchange.arrived = TimeOf(line, "arrived_ms");
  exchange.answered = TimeOf(line, "answered_ms");
  exchange.received = TimeOf(line, "received_ms");
  exchange.request_bytes = FromBase64(line, "request_bytes");
  exchange.response_bytes = FromBase64(line, "response_bytes");
  exchange.status = line.contains("status") ? absl::Status(CodeOf(line["status"]), line.value("message", ""))
                                            : absl::UnavailableError("no answer");
  if (line.contains("trailing")) exchange.trailing = line["trailing"].get<std::map<std::string, std::string>>();
  if (!Agree(line.at("request"), NewRequest(exchange.method), exchange.request_bytes)) {
    throw std::invalid_argument("request and request_bytes are not the same message");
  }
  if (line.contains("response") && !Agree(line["response"], NewResponse(exchange.method), exchange.response_bytes)) {
    throw std::invalid_argument("response and response_bytes are not the same message");
  }
  return exchange;
}

}  // namespace

std::unique_ptr<Message> NewRequest(std::string_view method) { return New(method, true); }
std::unique_ptr<Message> NewResponse(std::string_view method) { return New(method, false); }

std::string Serialize(const Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

std::string Transcript::ToText() const {
  Json header;
  header["transcript"] = name;
  header["about"] = about;
  header["recorded_from"] = recorded_from;
  header["over"] = over;
  for (const auto& [worker, start] : workers) {
    header["workers"][worker] = {{"concurrency", start.concurrency}, {"seed", start.seed}};
    if (start.prepare_ahead > 0) header["workers"][worker]["prepare_ahead"] = start.prepare_ahead;
  }
  if (!limits.empty()) header["limits"] = limits;
  std::string text = header.dump() + "\n";
  size_t next = 0;
  for (size_t i = 0; i < exchanges.size(); ++i) {
    for (; next < incidents.size() && incidents[next].at <= exchanges[i].sent; ++next) {
      text +=
          Json{{"at_ms", ToMillis(incidents[next].at)}, {"who", incidents[next].who}, {"what", incidents[next].what}}
              .dump() +
          "\n";
    }
    text += LineOf(exchanges[i], i + 1).dump() + "\n";
  }
  for (; next < incidents.size(); ++next) {
    text += Json{{"at_ms", ToMillis(incidents[next].at)}, {"who", incidents[next].who}, {"what", incidents[next].what}}
                .dump() +
            "\n";
  }
  return text;
}

absl::StatusOr<Transcript> Transcript::Parse(std::string_view text) {
  Transcript transcript;
  int number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    if (part.empty()) continue;
    ++number;
    try {
      const Json line = Json::parse(part.begin(), part.end());
      if (number == 1) {
        transcript.name = line.at("transcript");
        transcript.about = line.at("about");
        transcript.recorded_from = line.at("recorded_from");
        transcript.over = line.at("over");
        const Json workers = line.value("workers", Json::object());
        for (const auto& [worker, start] : workers.items()) {
          transcript.workers[worker] = {.concurrency = start.at("concurrency"),
                                        .seed = start.at("seed"),
                                        .prepare_ahead = start.value("prepare_ahead", 0)};
        }
        if (line.contains("limits")) transcript.limits = line["limits"].get<std::map<std::string, int64_t>>();
      } else if (line.contains("call")) {
        transcript.exchanges.push_back(ExchangeOf(line));
      } else {
        transcript.incidents.push_back({.at = absl::Milliseconds(line.at("at_ms").get<int64_t>()),
                                        .who = line.at("who"),
                                        .what = line.at("what")});
      }
    } catch (const std::exception& error) {
      return absl::InvalidArgumentError(fmt::format("line {}: {}", number, error.what()));
    }
  }
  if (number == 0) return absl::InvalidArgumentError("the transcript is empty");
  return transcript;
}

}  // namespace sheaf::golden
