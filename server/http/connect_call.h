// ConnectCall: the Connect protocol's front door to the pipeline: one unary call in one exchange of HTTP, serialised or
// as JSON.
//
//   routes.push_back(ConnectRoute(pipeline, method));     // POST /sheaf.v1.WorkService/Sync
//
// JSON is made into serialised bytes when the call was let in, where its request is parsed, and out of them beside the
// core. The call lives until its answer is sent. As thread-safe as the pipeline's Call.
#pragma once

#include "server/calls/call_pipeline.h"
#include "server/http/routes.h"

namespace sheaf {

// Both outlive the route. Methods that only look are served to GET, too.
Route ConnectRoute(CallPipeline& pipeline, const MethodRow& method);

}  // namespace sheaf
