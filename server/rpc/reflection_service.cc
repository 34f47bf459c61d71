#include "server/rpc/reflection_service.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <set>
#include <utility>

#include "server/rpc/grpc_call.h"

namespace sheaf {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

// Numbers of fields in grpc/reflection/v1alpha/reflection.proto.
constexpr int kFileByFilename = 3;
constexpr int kFileContainingSymbol = 4;
constexpr int kFileContainingExtension = 5;
constexpr int kAllExtensionNumbers = 6;
constexpr int kListServices = 7;
constexpr int kOriginalRequest = 2;
constexpr int kFileDescriptorResponse = 4;
constexpr int kListServicesResponse = 6;
constexpr int kErrorResponse = 7;

// A request has a name in it.
constexpr size_t kRequestBytesMax = 4 << 10;

std::string Serialised(const UnknownFieldSet& fields) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  fields.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

void AddError(grpc::StatusCode code, const std::string& message, UnknownFieldSet& answer) {
  UnknownFieldSet error;
  error.AddVarint(1, static_cast<uint64_t>(code));
  error.AddLengthDelimited(2, message);
  answer.AddLengthDelimited(kErrorResponse, Serialised(error));
}

// The file and all that it imports.
void AddFiles(const FileDescriptor& file, std::set<const FileDescriptor*>& seen, UnknownFieldSet& files) {
  if (!seen.insert(&file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  files.AddLengthDelimited(1, proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFiles(*file.dependency(i), seen, files);
}

void AddFiles(const FileDescriptor* file, const std::string& asked, UnknownFieldSet& answer) {
  if (file == nullptr) {
    return AddError(grpc::StatusCode::NOT_FOUND, fmt::format("there is no {}", asked.substr(0, 128)), answer);
  }
  std::set<const FileDescriptor*> seen;
  UnknownFieldSet files;
  AddFiles(*file, seen, files);
  answer.AddLengthDelimited(kFileDescriptorResponse, Serialised(files));
}

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

// One stream: a request, its answer, the next request. Either is under way, or the end.
class ReflectionService::Stream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Ends at once.
  explicit Stream(const grpc::Status& refusal) { Finish(refusal); }
  explicit Stream(ReflectionService& service) : service_(&service) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (request_.Length() > kRequestBytesMax) {
      return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "a request is a name, and no larger"));
    }
    std::vector<grpc::Slice> slices;
    std::string bytes;
    if (!request_.Dump(&slices).ok()) return Finish(grpc::Status(grpc::StatusCode::INTERNAL, "the request is gone"));
    for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    answer_ = ToBuffer(service_->Answer(bytes));
    StartWrite(&answer_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    answer_.Clear();
    StartRead(&request_);
  }
  void OnDone() override {
    if (service_ != nullptr) service_->num_streams_.fetch_sub(1, std::memory_order_relaxed);
    delete this;
  }

 private:
  // Null: refused.
  ReflectionService* const service_ = nullptr;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
};

ReflectionService::ReflectionService(const CallPipeline& pipeline, std::vector<std::string> services)
    : pipeline_(pipeline), services_(std::move(services)) {
  AddBidiStream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                [this](grpc::CallbackServerContext& context) { return Open(context); });
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ReflectionService::Open(
    grpc::CallbackServerContext& context) {
  const absl::StatusOr<IdentityPtr> caller = pipeline_.Identify([&] { return CredentialsOf(context); });
  if (!caller.ok()) return new Stream(ToGrpcStatus(caller.status()));
  const Limits& limits = pipeline_.limits();
  if (num_streams_.fetch_add(1, std::memory_order_relaxed) < limits.reflection_streams_max) return new Stream(*this);
  num_streams_.fetch_sub(1, std::memory_order_relaxed);
  return new Stream(
      ToGrpcStatus(limits.Refuse(&Limits::reflection_streams_max, "one more reflection stream would be over")));
}

std::string ReflectionService::Answer(const std::string& request) const {
  UnknownFieldSet answer;
  UnknownFieldSet asked;
  if (!asked.ParseFromString(request) || asked.empty()) {
    AddError(grpc::StatusCode::INVALID_ARGUMENT, "the request is not a ServerReflectionRequest", answer);
    return Serialised(answer);
  }
  answer.AddLengthDelimited(kOriginalRequest, request);
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  // The last one is what a parser of this message would keep.
  const UnknownField& field = asked.field(asked.field_count() - 1);
  const std::string name = field.type() == UnknownField::TYPE_LENGTH_DELIMITED ? field.length_delimited() : "";
  if (field.number() == kListServices) {
    UnknownFieldSet services;
    for (const std::string& service : services_) {
      UnknownFieldSet entry;
      entry.AddLengthDelimited(1, service);
      services.AddLengthDelimited(1, Serialised(entry));
    }
    answer.AddLengthDelimited(kListServicesResponse, Serialised(services));
  } else if (field.number() == kFileByFilename) {
    AddFiles(pool.FindFileByName(name), name, answer);
  } else if (field.number() == kFileContainingSymbol) {
    AddFiles(pool.FindFileContainingSymbol(name), name, answer);
  } else if (field.number() == kFileContainingExtension || field.number() == kAllExtensionNumbers) {
    AddError(grpc::StatusCode::NOT_FOUND, "no message here has extensions", answer);
  } else {
    AddError(grpc::StatusCode::UNIMPLEMENTED, "nothing that this server knows is asked for", answer);
  }
  return Serialised(answer);
}

}  // namespace sheaf
