// The metadata of a call that one server forwards to another, beside `authorization` and `traceparent`, which are its
// caller's own. The other server heeds them only on the port for servers, from whoever shows its secret.
#pragma once

namespace sheaf {

// PeerDoor::secret.
inline constexpr char kForwardSecretHeader[] = "sheaf-forward-secret";
// Over which connection the call came to the forwarding server: "ipv4:192.0.2.1:4711".
inline constexpr char kForwardConnectionHeader[] = "sheaf-forward-connection";
// Each name in the caller's certificate, which the forwarding server has checked. Binary.
inline constexpr char kForwardCertificateNameHeader[] = "sheaf-forward-certificate-name-bin";
// How large a read the forwarding server has room for, in bytes.
inline constexpr char kForwardAnswerBytesHeader[] = "sheaf-forward-answer-bytes-max";

// Set: whether the caller may do this is all that is asked; nothing is done.
inline constexpr char kForwardAsksOnlyHeader[] = "sheaf-forward-asks-only";

// In which shard the forwarding server took this one for the owner: a number. None: by a server before 0.2.
inline constexpr char kForwardShardHeader[] = "sheaf-forward-shard";

// Of all of them.
inline constexpr int kForwardMetadataBytesMax = 64 << 10;

// For whom the certificate of a port for servers is made.
inline constexpr char kPeerName[] = "sheaf-peer";

}  // namespace sheaf
