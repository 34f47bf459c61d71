// Paging: one list out of many pages.
//
//   ASSIGN_OR_RETURN(v1::ListTasksResponse all,
//                    ListAll(session, kListTasks, request, limit, [](auto& page) { return page.mutable_tasks(); }));
//   NoteIfCut(session, all, limit);
//
// The answer is the API's own message with the rows of all pages; `next_page_token` is set if `limit` cut it short. A
// server whose pages do not end is not followed for ever.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cli/arguments.h"
#include "cli/session.h"
#include "cli/terminal/errors.h"

namespace sheaf {

inline constexpr int64_t kPageSizeMax = 1000;
// Of --limit.
inline constexpr int64_t kListLimitDefault = 1000;
// Memory for the rows of a list without a limit. More are read in parts.
inline constexpr int64_t kListBytesMax = int64_t{4} << 30;

// Where a list that --limit cut goes on: nextPageToken of its JSON.
inline void DeclarePageToken(Arguments& arguments, std::string* token) {
  arguments.Text("--page-token", "TOKEN", "continue a list that --limit cut: its nextPageToken", token);
}

// 0 means no limit. INTERNAL if the server's pages do not go on; RESOURCE_EXHAUSTED if the rows take
// more than `bytes_max`.
template <typename M, typename Rows>
absl::StatusOr<typename M::Response> ListAll(Session& session, const M& method, typename M::Request request,
                                             int64_t limit, Rows rows, int64_t bytes_max = kListBytesMax) {
  if (limit == 0) limit = std::numeric_limits<int64_t>::max();
  typename M::Response all;
  int64_t bytes = 0;
  while (true) {
    const auto size = static_cast<int32_t>(std::min(kPageSizeMax, limit - rows(all)->size()));
    request.set_page_size(size);
    ASSIGN_OR_RETURN(typename M::Response page, session.Call(method, request));
    const bool is_last = page.next_page_token().empty();
    // A page of nothing, or one that comes again, would keep us here for ever.
    const bool goes_on = is_last || (!rows(page)->empty() && page.next_page_token() != request.page_token());
    if (!goes_on || rows(page)->size() > size) {
      return absl::InternalError(
          fmt::format("the server's pages do not go on: one of {} rows came where {} were asked for; it is newer or "
                      "broken",
                      rows(page)->size(), size));
    }
    bytes += static_cast<int64_t>(page.SpaceUsedLong());
    for (auto& row : *rows(page)) rows(all)->Add(std::move(row));
    all.set_next_page_token(page.next_page_token());
    if (is_last || rows(all)->size() >= limit) return all;
    if (bytes > bytes_max) {
      const int num_rows = rows(all)->size();
      return WithHint(absl::ResourceExhaustedError(fmt::format("the list has more than {} rows, which take {} bytes of "
                                                               "memory, and no more than {} are taken",
                                                               num_rows, bytes, bytes_max)),
                      fmt::format("read it in parts: --limit {}, and from then on with --page-token", num_rows));
    }
    request.set_page_token(page.next_page_token());
  }
}

// Says on stderr that there is more, if there is.
template <typename Response>
void NoteIfCut(Session& session, const Response& response, int64_t limit) {
  if (response.next_page_token().empty()) return;
  session.err() << "note: these are the first " << limit << "; --limit 0 shows all, --page-token "
                << response.next_page_token() << " the next\n";
}

}  // namespace sheaf
