// MethodRows: what the server answers: every RPC of the wire contract, one row each, and all that is said of it
// (server/calls/method_row.h). What a transport serves, roles, queues, limits and metrics all follow from these rows.
//
//   Handlers handlers(core, payloads, admission, &certificate);
//   const MethodTable methods(MethodRows(handlers));
//
// Rows refer to the handlers, which outlive them. Thread-safe as far as a handler says so: most run in batches.
#pragma once

#include <vector>

#include "server/calls/admission.h"
#include "server/calls/method_row.h"
#include "server/handlers/access_handlers.h"
#include "server/handlers/inspection_handlers.h"
#include "server/handlers/round_handlers.h"
#include "server/handlers/transfer_handlers.h"
#include "server/handlers/upload_handlers.h"
#include "server/handlers/work_handlers.h"
#include "storage/payload_store.h"
#include "tls/serving_certificate.h"

namespace sheaf {

class Core;

// All that they are given must outlive them; `certificate` is what the server shows, null where it
// shows none.
struct Handlers {
  Handlers(Core& core, PayloadStore& payloads, const Admission& admission, const ServingCertificate* certificate);

  WorkHandlers work;
  UploadHandlers upload;
  TransferHandlers transfer;
  RoundHandlers round;
  InspectionHandlers inspection;
  AccessHandlers access;
};

std::vector<MethodRow> MethodRows(Handlers& handlers);

}  // namespace sheaf
