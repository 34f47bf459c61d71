// The yardstick of HTTP/1.1: a server that answers a POST with its body, by Boost.Beast as its examples have it.
#pragma once

#include <string>

namespace sheaf::bench {

// On a free port of the loopback until the process is killed; prints "listening on ...". With a certificate and its key
// (files) it speaks TLS.
void ServeHttpEcho(const std::string& certificate, const std::string& key);

}  // namespace sheaf::bench
