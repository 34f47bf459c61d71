// InputsAhead: what submitters wrote for tasks that are about to be leased, or were and may come back, so that not
// every lease asks a database that is a round trip away (docs/adr/0016). It holds what it was given last, up to some
// megabytes; all of it may be read again.
//
//   inputs.Put(key, "payload", "");
//   const InputsAhead::Input* input = inputs.Find(key);   // Null: ask the database.
//   inputs.Erase(key);                                    // Nobody will lease it again.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

namespace sheaf {

class InputsAhead {
 public:
  struct Input {
    std::string payload;
    std::string data_selector;
  };

  // Of the task of this key, which has one input for ever.
  void Put(int64_t task_key, std::string payload, std::string data_selector) {
    // What is in there may never be asked for: its round ended. To begin anew costs reading some of it again.
    if (num_bytes_ > kBytesMax) Clear();
    const size_t size = payload.size() + data_selector.size() + kEntryBytes;
    if (inputs_.try_emplace(task_key, Input{std::move(payload), std::move(data_selector)}).second) num_bytes_ += size;
  }
  const Input* Find(int64_t task_key) const {
    const auto found = inputs_.find(task_key);
    return found == inputs_.end() ? nullptr : &found->second;
  }
  void Erase(int64_t task_key) {
    const auto found = inputs_.find(task_key);
    if (found == inputs_.end()) return;
    num_bytes_ -= found->second.payload.size() + found->second.data_selector.size() + kEntryBytes;
    inputs_.erase(found);
  }
  void Clear() {
    inputs_.clear();
    num_bytes_ = 0;
  }

 private:
  static constexpr size_t kBytesMax = size_t{32} << 20;
  static constexpr size_t kEntryBytes = 128;

  std::unordered_map<int64_t, Input> inputs_;
  size_t num_bytes_ = 0;
};

}  // namespace sheaf
