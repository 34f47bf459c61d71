// PeerAddress: how the servers of one database reach each other, as the database tells them.
//
//   const PeerAddress peer = {.address = "10.0.0.1:41234", .certificate = pem, .secret = secret};
//
// The database vouches for both ends: who reads its rows knows which certificate belongs to the server at this address,
// and what to show to be taken for a server. A plain value.
#pragma once

#include <string>

namespace sheaf {

struct PeerAddress {
  // HOST:PORT; empty: other servers do not reach it.
  std::string address;
  // What the server shows there, in PEM. It is its own authority.
  std::string certificate;
  // What it wants to be shown.
  std::string secret;

  friend bool operator==(const PeerAddress&, const PeerAddress&) = default;
};

}  // namespace sheaf
