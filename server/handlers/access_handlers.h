// AccessHandlers: AccessService, free of transport. See proto/sheaf/v1/access_service.proto for the contract.
#pragma once

#include "server/calls/call_context.h"
#include "server/core/batches/reply.h"
#include "sheaf/v1/access_service.pb.h"

namespace sheaf {

class Core;

class AccessHandlers {
 public:
  explicit AccessHandlers(Core& core) : core_(core) {}

  void CreateToken(const v1::CreateTokenRequest& request, const CallContext& call,
                   Reply<v1::CreateTokenResponse> reply);
  void ListTokens(const v1::ListTokensRequest& request, const CallContext& call, Reply<v1::ListTokensResponse> reply);
  void RevokeToken(const v1::RevokeTokenRequest& request, const CallContext& call,
                   Reply<v1::RevokeTokenResponse> reply);

 private:
  Core& core_;
};

}  // namespace sheaf
