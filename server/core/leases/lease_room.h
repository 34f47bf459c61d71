// LeaseRoom: how many bytes of leases go into one answer, and into all answers of one batch.
//
//   room.BeginAnswer();
//   const int32_t portion = room.NumFitting(bytes_each);   // 0: what is left comes with another answer.
//   room.Take(bytes_each);                                 // For each lease.
//   room.BeginBatch();                                     // Its answers have left.
//
// A lease repeats its round's spec and carries its task's payload: 256 of them may have 32 MiB, more than a client
// takes in one message, and a batch has hundreds of answers, all in memory until it is durable. One lease always goes
// with an answer, whatever its size, or a worker would ask for ever; unless the batch is full, whose next comes in
// milliseconds. Not thread-safe: the core's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace sheaf {

class LeaseRoom {
 public:
  LeaseRoom(int64_t answer_bytes_max, int64_t batch_bytes_max)
      : answer_bytes_max_(answer_bytes_max), batch_bytes_max_(batch_bytes_max) {}

  void BeginBatch() { batch_bytes_ = 0; }
  void BeginAnswer() {
    answer_bytes_ = 0;
    is_empty_ = true;
  }

  bool IsBatchFull() const { return batch_bytes_ >= batch_bytes_max_; }
  // How many leases of this size fit.
  int32_t NumFitting(int64_t bytes_each) const {
    if (IsBatchFull()) return 0;
    const int64_t fitting = std::max<int64_t>(answer_bytes_max_ - answer_bytes_, 0) / std::max<int64_t>(bytes_each, 1);
    return static_cast<int32_t>(std::clamp<int64_t>(fitting, is_empty_ ? 1 : 0, std::numeric_limits<int32_t>::max()));
  }
  void Take(int64_t bytes) {
    answer_bytes_ += bytes;
    batch_bytes_ += bytes;
    is_empty_ = false;
  }

 private:
  const int64_t answer_bytes_max_;
  const int64_t batch_bytes_max_;
  int64_t answer_bytes_ = 0;
  int64_t batch_bytes_ = 0;
  bool is_empty_ = true;
};

}  // namespace sheaf
