#include "server/calls/call_figures.h"

#include <algorithm>
#include <optional>

#include "server/core/limits/limits.h"

namespace sheaf {

CallFigures::CallFigures(const MethodTable& methods)
    : methods_(methods), by_method_(methods.rows().size()), refused_by_limit_(LimitRows().size()) {}

void CallFigures::Count(const MethodRow& method, const Ended& ended) {
  MethodFigures& figures = Of(method);
  // A handler may make up a code.
  const auto code = std::min(static_cast<size_t>(ended.code), figures.by_code.size() - 1);
  figures.by_code[code].Add();
  figures.duration_seconds.Observe(absl::ToDoubleSeconds(ended.took));
  figures.request_bytes.Add(ended.request_bytes);
  if (ended.answer_bytes > 0) figures.answer_bytes.Add(ended.answer_bytes);
}

void CallFigures::CountRefusal(const absl::Status& status) {
  if (const std::optional<size_t> limit = RefusingLimit(status)) refused_by_limit_[*limit].Add();
}

}  // namespace sheaf
