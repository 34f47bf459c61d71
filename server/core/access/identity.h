// Identity: who calls, as their token or certificate says, and how far that reaches.
//
//   RETURN_IF_ERROR(caller.CheckRole("sheaf.v1.WorkService/Sync", {v1::WORKER}));
//   RETURN_IF_ERROR(caller.CheckPopulation("default"));
//   if (!caller.OwnsLease(lease_token)) return absl::PermissionDeniedError("the lease is another's");
//
// Immutable, and shared: calls that wait keep theirs, whatever becomes of the token meanwhile.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "sheaf/v1/access_service.pb.h"
#include "storage/ids.h"

namespace sheaf {

// Which roles may do something, as bits.
class RoleSet {
 public:
  RoleSet() = default;
  constexpr RoleSet(std::initializer_list<v1::Role> roles) {
    for (const v1::Role role : roles) bits_ |= int64_t{1} << role;
  }
  explicit RoleSet(int64_t bits) : bits_(bits) {}

  int64_t bits() const { return bits_; }
  bool has(v1::Role role) const { return (bits_ >> role & 1) != 0; }
  bool meets(RoleSet other) const { return (bits_ & other.bits_) != 0; }
  // "submitter or operator".
  std::string ToString(std::string_view joint) const;

 private:
  int64_t bits_ = 0;
};

inline constexpr RoleSet kEveryRole = {v1::SUBMITTER, v1::WORKER, v1::OPERATOR, v1::VIEWER, v1::RELAY};

// Who calls. Never says what its secret is.
struct Identity {
  // Whoever comes to a server without tokens.
  static std::shared_ptr<const Identity> Anybody();

  // Empty: anybody.
  std::string name;
  TokenId token;
  RoleSet roles = kEveryRole;
  // Sorted. Empty: all.
  std::vector<std::string> populations;
  // Ends the lease tokens and upload names that were made for this identity, so that no other can use them. Empty for
  // anybody.
  std::string lease_tag;
  std::string upload_tag;

  bool is_everywhere() const { return populations.empty(); }
  bool Reaches(const std::string& population) const;
  bool OwnsLease(std::string_view lease_token) const { return lease_token.ends_with(lease_tag); }
  // The lease was given to an identity. A token without a tag was given to anybody.
  static bool IsTagged(std::string_view lease_token) { return lease_token.find('-') != std::string_view::npos; }
  bool OwnsUpload(std::string_view upload_id) const { return name.empty() || upload_id.ends_with(upload_tag); }

  // PERMISSION_DENIED, saying who would be let.
  absl::Status CheckRole(std::string_view method, RoleSet allowed) const;
  absl::Status CheckPopulation(const std::string& population) const;
  absl::Status CheckEverywhere() const;
};
using IdentityPtr = std::shared_ptr<const Identity>;

}  // namespace sheaf
