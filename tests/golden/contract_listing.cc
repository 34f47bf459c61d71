#include "tests/golden/contract_listing.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include "sheaf/v1/access_service.pb.h"
#include "sheaf/v1/blob_service.pb.h"
#include "sheaf/v1/inspection_service.pb.h"
#include "sheaf/v1/round_service.pb.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf::golden {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

void List(const EnumDescriptor& type, std::set<std::string>& lines) {
  for (int i = 0; i < type.value_count(); ++i) {
    lines.insert(fmt::format("{} {} = {}", type.full_name(), type.value(i)->name(), type.value(i)->number()));
  }
}

std::string TypeName(const FieldDescriptor& field) {
  if (field.message_type() != nullptr) return field.message_type()->full_name();
  if (field.enum_type() != nullptr) return field.enum_type()->full_name();
  return field.type_name();
}

void List(const Descriptor& type, std::set<std::string>& lines) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const auto* oneof = field.real_containing_oneof();
    lines.insert(fmt::format("{} = {} {}{}{}", field.full_name(), field.number(),
                             field.is_repeated() ? "repeated " : "", TypeName(field),
                             oneof == nullptr ? "" : " of " + oneof->name()));
  }
  for (int i = 0; i < type.nested_type_count(); ++i) List(*type.nested_type(i), lines);
  for (int i = 0; i < type.enum_type_count(); ++i) List(*type.enum_type(i), lines);
}

void List(const FileDescriptor& file, std::set<std::string>& lines) {
  if (file.package() != "sheaf.v1") return;
  for (int i = 0; i < file.message_type_count(); ++i) List(*file.message_type(i), lines);
  for (int i = 0; i < file.enum_type_count(); ++i) List(*file.enum_type(i), lines);
  for (int i = 0; i < file.service_count(); ++i) {
    for (int j = 0; j < file.service(i)->method_count(); ++j) {
      const auto& method = *file.service(i)->method(j);
      lines.insert(fmt::format("rpc {}/{} ({}) returns ({})", file.service(i)->full_name(), method.name(),
                               method.input_type()->full_name(), method.output_type()->full_name()));
    }
  }
  for (int i = 0; i < file.dependency_count(); ++i) List(*file.dependency(i), lines);
}

}  // namespace

std::set<std::string> ContractListing() {
  std::set<std::string> lines;
  for (const FileDescriptor* file :
       {v1::SyncRequest::descriptor()->file(), v1::ReadBlobRequest::descriptor()->file(),
        v1::GetRoundRequest::descriptor()->file(), v1::GetTaskRequest::descriptor()->file(),
        v1::CreateTokenRequest::descriptor()->file()}) {
    List(*file, lines);
  }
  return lines;
}

}  // namespace sheaf::golden
