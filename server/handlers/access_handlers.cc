#include "server/handlers/access_handlers.h"

#include "server/core/core.h"

namespace sheaf {

void AccessHandlers::CreateToken(const v1::CreateTokenRequest& request, const CallContext& call,
                                 Reply<v1::CreateTokenResponse> reply) {
  reply(core_.access().Create(request, *call.caller, call.now));
}

void AccessHandlers::ListTokens(const v1::ListTokensRequest& request, const CallContext& call,
                                Reply<v1::ListTokensResponse> reply) {
  reply(core_.access().List(request, *call.caller, call.now));
}

void AccessHandlers::RevokeToken(const v1::RevokeTokenRequest& request, const CallContext& call,
                                 Reply<v1::RevokeTokenResponse> reply) {
  reply(core_.access().Revoke(request, *call.caller, call.now));
}

}  // namespace sheaf
