#include "server/rpc/caller.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sheaf {
namespace {

std::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

}  // namespace

absl::StatusOr<IdentityPtr> CallerOf(const grpc::CallbackServerContext& context, const MethodTable& methods) {
  // Neither metadata nor certificates are looked at where nobody asks for them.
  if (!methods.requires_tokens()) return Identity::Anybody();
  const auto& metadata = context.client_metadata();
  const auto header = metadata.find("authorization");
  if (header != metadata.end()) return methods.Authenticate(View(header->second), {});
  // Empty unless the client showed a certificate that was checked.
  std::vector<std::string> names;
  const std::shared_ptr<const grpc::AuthContext> connection = context.auth_context();
  if (connection != nullptr && connection->IsPeerAuthenticated()) {
    for (const grpc::string_ref& name : connection->GetPeerIdentity()) names.emplace_back(View(name));
  }
  return methods.Authenticate("", names);
}

}  // namespace sheaf
