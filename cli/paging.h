// Paging: one list out of many pages.
//
//   ASSIGN_OR_RETURN(v1::ListTasksResponse all,
//                    ListAll(session, kListTasks, request, limit, [](auto& response) { return response.mutable_tasks();
//                    }));
//
// The answer is the API's own message with the rows of all pages; `next_page_token` is set if `limit` cut it short.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cli/arguments.h"
#include "cli/session.h"

namespace sheaf {

inline constexpr int64_t kPageSizeMax = 1000;
// Of --limit.
inline constexpr int64_t kListLimitDefault = 1000;

// Where a list that --limit cut goes on: nextPageToken of its JSON.
inline void DeclarePageToken(Arguments& arguments, std::string* token) {
  arguments.Text("--page-token", "TOKEN", "go on where --limit cut a list: its nextPageToken", token);
}

// 0 means no limit.
template <typename M, typename Rows>
absl::StatusOr<typename M::Response> ListAll(Session& session, const M& method, typename M::Request request,
                                             int64_t limit, Rows rows) {
  if (limit == 0) limit = std::numeric_limits<int64_t>::max();
  typename M::Response all;
  while (true) {
    request.set_page_size(static_cast<int32_t>(std::min(kPageSizeMax, limit - rows(all)->size())));
    ASSIGN_OR_RETURN(typename M::Response page, session.Call(method, request));
    for (auto& row : *rows(page)) rows(all)->Add(std::move(row));
    all.set_next_page_token(page.next_page_token());
    if (page.next_page_token().empty() || rows(all)->size() >= limit) return all;
    // A server that repeats a token would keep us here for ever.
    if (page.next_page_token() == request.page_token()) {
      return absl::InternalError("the server repeats a page; it is newer or broken");
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
