#include "server/handlers/access_handlers.h"

#include "server/core/core.h"

namespace sheaf {

void AccessHandlers::CreateToken(const v1::CreateTokenRequest& request, const IdentityPtr& caller, absl::Time now,
                                 Reply<v1::CreateTokenResponse> reply) {
  reply(core_.access().Create(request, *caller, now));
}

void AccessHandlers::ListTokens(const v1::ListTokensRequest& request, const IdentityPtr& caller, absl::Time now,
                                Reply<v1::ListTokensResponse> reply) {
  reply(core_.access().List(request, *caller, now));
}

void AccessHandlers::RevokeToken(const v1::RevokeTokenRequest& request, const IdentityPtr& caller, absl::Time now,
                                 Reply<v1::RevokeTokenResponse> reply) {
  reply(core_.access().Revoke(request, *caller, now));
}

}  // namespace sheaf
