// Every method of every service, by the descriptors: what is asked of all of them cannot forget a new one.
#pragma once

#include <google/protobuf/descriptor.h>

#include <vector>

#include "sheaf/v1/access_service.pb.h"
#include "sheaf/v1/blob_service.pb.h"
#include "sheaf/v1/inspection_service.pb.h"
#include "sheaf/v1/round_service.pb.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

inline std::vector<const google::protobuf::MethodDescriptor*> AllMethods() {
  std::vector<const google::protobuf::MethodDescriptor*> methods;
  for (const auto* file : {v1::SyncRequest::descriptor()->file(), v1::ReadBlobRequest::descriptor()->file(),
                           v1::GetRoundRequest::descriptor()->file(), v1::GetTaskRequest::descriptor()->file(),
                           v1::CreateTokenRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) methods.push_back(file->service(s)->method(m));
    }
  }
  return methods;
}

}  // namespace sheaf
