// AccessHandlers: AccessService, free of transport. See proto/sheaf/v1/access_service.proto for the contract.
#pragma once

#include "absl/time/time.h"
#include "server/core/access_control.h"
#include "server/core/reply.h"
#include "sheaf/v1/access_service.pb.h"

namespace sheaf {

class Core;

class AccessHandlers {
 public:
  explicit AccessHandlers(Core& core) : core_(core) {}

  void CreateToken(const v1::CreateTokenRequest& request, const IdentityPtr& caller, absl::Time now,
                   Reply<v1::CreateTokenResponse> reply);
  void ListTokens(const v1::ListTokensRequest& request, const IdentityPtr& caller, absl::Time now,
                  Reply<v1::ListTokensResponse> reply);
  void RevokeToken(const v1::RevokeTokenRequest& request, const IdentityPtr& caller, absl::Time now,
                   Reply<v1::RevokeTokenResponse> reply);

 private:
  Core& core_;
};

}  // namespace sheaf
