// The yardstick: a server that answers a small unary call at once, on gRPC's callback API as sheafd does.
#pragma once

namespace sheaf::bench {

// Serves BlobService.QueryUpload and WriteChunk (which only receives) on a free port of the loopback until the process
// is killed; prints "listening on ...".
void ServeEcho();

}  // namespace sheaf::bench
