#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "cli/commands.h"
#include "cli/commands/round_waiting.h"
#include "cli/files.h"
#include "cli/input/message_input.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/round_text.h"
#include "proto/methods.h"
#include "sdk/cpp/client/blob_client.h"

namespace sheaf {
namespace {

constexpr char kSpecHint[] = "'sheaf help round-spec' shows a spec and its fields";

class RoundCreate final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments
        .Text("-f,--file", "FILE",
              "the round: JSON, or YAML if so named (see 'sheaf help round-spec'); - reads JSON from stdin", &file_)
        .is_required = true;
    arguments.Text("--broadcast", "FILE", "a .safetensors file for the workers; uploaded first", &broadcast_);
    arguments.Flag("--announce",
                   "without its broadcast, which comes with 'sheaf round open': workers prepare meanwhile", &announce_);
    arguments.Flag("--wait", "wait until the round ends", &wait_);
    arguments.Text("--request-id", "ID", "the same id never makes a second round [random]", &request_id_);
    arguments.Flag("--validate-only", "check everything, create nothing", &validate_only_);
  }

  absl::Status Run(Session& session) override {
    if (announce_ && !broadcast_.empty()) {
      return WithHint(absl::InvalidArgumentError("a round that is announced gets its broadcast when it is opened"),
                      "leave --broadcast out, and give it to 'sheaf round open'");
    }
    v1::CreateRoundRequest request;
    request.set_request_id(request_id_.empty() ? session.NewRequestId() : request_id_);
    request.set_validate_only(validate_only_);
    ASSIGN_OR_RETURN(*request.mutable_spec(), ReadSpec(session));
    if (announce_) request.mutable_spec()->set_announced(true);
    RETURN_IF_ERROR(UploadBroadcast(session, *request.mutable_spec()));
    const absl::StatusOr<v1::CreateRoundResponse> created = session.Call(kCreateRound, request);
    if (absl::IsInvalidArgument(created.status())) return WithHint(created.status(), kSpecHint);
    RETURN_IF_ERROR(created.status());
    const v1::CreateRoundResponse& response = *created;
    if (validate_only_) return ReportValid(session, response);
    if (!wait_) return ReportCreated(session, response);
    if (!session.json()) session.out() << response.round().id() << std::endl;
    ASSIGN_OR_RETURN(const v1::Round ended, AwaitRound(session, response.round().id(), Progress::kShown));
    // Its id is on stdout already; how it ended is for people.
    if (session.json()) return ReportEnd(session, ended);
    session.err() << fmt::format("round {} ended after {}\n", ended.id(),
                                 HumanDuration(ElapsedOf(ended, session.now())));
    return EndStatus(ended);
  }

 private:
  absl::StatusOr<v1::RoundSpec> ReadSpec(Session& session) const {
    std::string text;
    if (file_ == "-") {
      text.assign(std::istreambuf_iterator<char>(session.host().in), std::istreambuf_iterator<char>());
    } else {
      ASSIGN_OR_RETURN(text, ReadFile(file_));
    }
    const auto parse = file_.ends_with(".yaml") || file_.ends_with(".yml") ? FromYaml : FromJson;
    v1::RoundSpec spec;
    if (absl::Status parsed = parse(text, file_ == "-" ? "stdin" : file_, &spec); !parsed.ok()) {
      return WithHint(std::move(parsed), kSpecHint);
    }
    if (spec.population().empty()) spec.set_population(session.options().population);
    return spec;
  }

  absl::Status UploadBroadcast(Session& session, v1::RoundSpec& spec) const {
    if (broadcast_.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string bytes, ReadFile(broadcast_));
    ASSIGN_OR_RETURN(Transport * transport, session.transport());
    ASSIGN_OR_RETURN(const std::string digest, UploadBlob(*transport, session.host().random, bytes, spec.population()));
    if (!spec.broadcast_digest().empty() && spec.broadcast_digest() != digest) {
      return WithHint(absl::InvalidArgumentError(fmt::format(
                          "{} is not the broadcast that the spec names: its digest is {}", broadcast_, digest)),
                      "leave broadcastDigest out of the spec, or --broadcast out of the command");
    }
    spec.set_broadcast_digest(digest);
    session.err() << fmt::format("uploaded {} ({}), sha256 {}\n", broadcast_,
                                 HumanBytes(static_cast<int64_t>(bytes.size())), digest);
    return absl::OkStatus();
  }

  static absl::Status ReportValid(Session& session, const v1::CreateRoundResponse& response) {
    if (session.json()) return session.PrintJson(response);
    session.out() << "valid\n";
    return absl::OkStatus();
  }

  static absl::Status ReportCreated(Session& session, const v1::CreateRoundResponse& response) {
    if (session.json()) return session.PrintJson(response);
    session.out() << response.round().id() << "\n";
    return absl::OkStatus();
  }

  std::string file_;
  std::string broadcast_;
  bool announce_ = false;
  bool wait_ = false;
  std::string request_id_;
  bool validate_only_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeRoundCreate() { return std::make_unique<RoundCreate>(); }

}  // namespace sheaf
