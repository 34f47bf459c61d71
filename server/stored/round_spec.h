// What a round was asked for, as RoundRecord::spec keeps it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "sheaf/v1/round.pb.h"
#include "storage/records.h"

namespace sheaf {

// Of a spec that PrepareRound made. Listed tasks are left out: each has a record of its own.
std::string EncodeSpec(const v1::RoundSpec& spec);
// DATA_LOSS, naming the round.
absl::StatusOr<v1::RoundSpec> DecodeSpec(const RoundRecord& record);

}  // namespace sheaf
