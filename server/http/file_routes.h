// FileRoutes: released aggregates and broadcasts as files, for browsers, curl and whatever reads safetensors by ranges:
//
//   GET /files/aggregates/ROUND          by the rights of RoundService/ReadAggregate
//   GET /files/broadcasts/SHA256         by those of BlobService/ReadBlob
//
//   ASSIGN_OR_RETURN(auto server, HttpServer::Start(pipeline, clock, {.listen = "127.0.0.1:0",
//                                                                     .routes = FileRoutes(pipeline)}));
//
// A file is read piece by piece, each by a call of that method, once the client has taken the piece before: so the
// server holds one piece of it, with the room that every answer needs, and whoever loses a right loses the rest of the
// file. What a path names never changes, so that the ETag is the digest, and caches keep it for good. The first call
// reads a single byte: it says whether the caller may, how large the file is, and its digest. An answer that breaks off
// is shorter than its content-length; the rest is had by a range.
//
// As thread-safe as the pipeline, which outlives the routes.
#pragma once

#include <vector>

#include "server/calls/call_pipeline.h"
#include "server/http/routes.h"

namespace sheaf {

std::vector<Route> FileRoutes(CallPipeline& pipeline);

}  // namespace sheaf
