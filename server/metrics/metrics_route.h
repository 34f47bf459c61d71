// MetricsRoute: `GET /metrics` of the HTTP port.
//
//   ASSIGN_OR_RETURN(auto server, HttpServer::Start(pipeline, clock, {.listen = "127.0.0.1:0",
//                                                                     .routes = {MetricsRoute(text, pipeline)}}));
//
// For a viewer or an operator, of all populations: what each of them does is in it. The text is made in the CallPool,
// and has room like a list's answer (AnswerBooks): whoever asks and does not read keeps nobody else from asking. Refers
// to both arguments. Thread-safe.
#pragma once

#include "server/calls/call_pipeline.h"
#include "server/http/routes.h"
#include "server/metrics/metrics_text.h"

namespace sheaf {

Route MetricsRoute(const MetricsText& text, CallPipeline& pipeline);

}  // namespace sheaf
