// What a task requires of its worker, and whether a worker's labels fulfil it.
//
//   const std::string requirement = CanonicalLabels(task_spec.requirements());      // "gpu=yes,zone=eu"
//   const bool may_run_it = Fulfils(worker.labels, requirement);
//
// A round may have many requirements: RequirementIndex finds those that a worker fulfils without comparing it with all.
#pragma once

#include <google/protobuf/map.h>

#include <string>
#include <string_view>

namespace sheaf {

// Labels as one canonical text ("gpu=yes,region=eu"), by key.
std::string CanonicalLabels(const google::protobuf::Map<std::string, std::string>& labels);
// True if `labels` carry every pair of `requirement`, a CanonicalLabels text.
bool Fulfils(const google::protobuf::Map<std::string, std::string>& labels, std::string_view requirement);

}  // namespace sheaf
