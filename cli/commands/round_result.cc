#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/files.h"
#include "cli/npz.h"
#include "cli/terminal/errors.h"
#include "sdk/cpp/client/round_client.h"
#include "sdk/cpp/program/program.h"

namespace sheaf {
namespace {

// numpy's names of the element types; all are little-endian.
const char* NumpyType(v1::DType dtype) {
  switch (dtype) {
    case v1::FLOAT32:
      return "<f4";
    case v1::FLOAT64:
      return "<f8";
    case v1::INT32:
      return "<i4";
    case v1::INT64:
      return "<i8";
    case v1::UINT64:
      return "<u8";
    case v1::UINT8:
      return "|u1";
    default:
      return nullptr;
  }
}

absl::StatusOr<std::string> ToNpz(const SafetensorsView& view) {
  std::vector<NpyArray> arrays;
  for (const TensorView& tensor : view.tensors()) {
    const char* descr = NumpyType(tensor.dtype);
    if (descr == nullptr) {
      return absl::UnimplementedError(fmt::format("numpy has no name for the type of {}", tensor.name));
    }
    arrays.push_back({.name = tensor.name, .descr = descr, .shape = tensor.shape, .data = tensor.data});
  }
  absl::StatusOr<std::string> npz = EncodeNpz(arrays);
  if (!npz.ok()) return WithHint(npz.status(), "write it as .safetensors instead");
  return npz;
}

class RoundResult final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Positional("ROUND", "the round's id", &round_);
    arguments.Text("-o,--output", "FILE", "where to: .npz for numpy, or .safetensors [ROUND.npz]", &path_);
    arguments.Flag("--force", "replace the file if it is there", &force_);
  }

  absl::Status Run(Session& session) override {
    if (path_.empty()) path_ = round_ + ".npz";
    const bool npz = path_.ends_with(".npz");
    if (!npz && !path_.ends_with(".safetensors")) {
      return WithHint(absl::InvalidArgumentError(fmt::format("'{}' says no format", path_)),
                      "end it in .npz or .safetensors");
    }
    // Before the download, not after.
    if (!force_ && FileExists(path_)) return ExistsAlready(path_);
    ASSIGN_OR_RETURN(Transport * transport, session.transport());
    absl::StatusOr<std::string> file = ReadAggregate(*transport, round_);
    if (absl::IsFailedPrecondition(file.status())) {
      return WithHint(
          file.status(),
          fmt::format("'sheaf round wait {0}' waits for it, 'sheaf round explain {0}' says what is missing", round_));
    }
    RETURN_IF_ERROR(file.status());
    ASSIGN_OR_RETURN(const SafetensorsView view, SafetensorsView::Parse(*file));
    std::string bytes;
    if (npz) {
      ASSIGN_OR_RETURN(bytes, ToNpz(view));
    }
    RETURN_IF_ERROR(WriteFile(path_, npz ? bytes : *file, force_ ? Overwrite::kYes : Overwrite::kNo));
    Report(session, view, npz ? bytes.size() : file->size());
    return absl::OkStatus();
  }

 private:
  void Report(Session& session, const SafetensorsView& view, size_t size) const {
    session.err() << fmt::format("wrote {} ({}):\n", path_, HumanBytes(static_cast<int64_t>(size)));
    for (const TensorView& tensor : view.tensors()) {
      session.err() << fmt::format("  {}  {} [{}]\n", tensor.name, v1::DType_Name(tensor.dtype),
                                   fmt::join(tensor.shape, ", "));
    }
  }

  std::string round_;
  std::string path_;
  bool force_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeRoundResult() { return std::make_unique<RoundResult>(); }

}  // namespace sheaf
