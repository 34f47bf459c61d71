// ContractListing: the wire contract of this build, a line for each message, field, enum value and method. What a
// released version listed stays: fields are only added.
//
//   for (const std::string& line : Listed("v1/contract.txt")) CHECK(ContractListing().contains(line));
#pragma once

#include <set>
#include <string>

namespace sheaf::golden {

// "sheaf.v1.Lease.task = 1 string" ...
std::set<std::string> ContractListing();

}  // namespace sheaf::golden
