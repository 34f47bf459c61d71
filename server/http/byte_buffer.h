// ByteBuffer: bytes that arrive piece by piece. Unlike a string it does not clear memory that is about to be written,
// and gives all of it back when it is cleared.
//
//   ByteBuffer body;
//   const std::span<char> space = body.Space(left);      // At most `left` bytes, at least one.
//   body.Commit(recv(fd, space.data(), space.size(), 0));
//   Parse(body.view());
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace sheaf {

class ByteBuffer {
 public:
  ByteBuffer() = default;
  ByteBuffer(ByteBuffer&& other) noexcept
      : bytes_(std::move(other.bytes_)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  ByteBuffer& operator=(ByteBuffer&& other) noexcept {
    bytes_ = std::move(other.bytes_);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }

  std::string_view view() const { return {bytes_.get(), size_}; }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }

  // Room for `expected` > 0 more bytes, or for some of them: memory grows with what came, not with what was promised.
  std::span<char> Space(size_t expected) {
    if (size_ == capacity_) Grow(std::min(size_ + expected, std::max(kFirstBytes, 2 * capacity_)));
    return {bytes_.get() + size_, std::min(capacity_ - size_, expected)};
  }
  // So many bytes of the space were written.
  void Commit(size_t count) { size_ += count; }
  void Append(std::string_view more) {
    if (more.empty()) return;
    if (size_ + more.size() > capacity_) Grow(std::max(size_ + more.size(), capacity_ == 0 ? 0 : 2 * capacity_));
    std::memcpy(bytes_.get() + size_, more.data(), more.size());
    size_ += more.size();
  }
  // Forgets the first bytes; the rest moves.
  void DropFront(size_t count) {
    if (count == size_) return Clear();
    std::memmove(bytes_.get(), bytes_.get() + count, size_ - count);
    size_ -= count;
  }
  void Clear() { *this = ByteBuffer(); }

 private:
  static constexpr size_t kFirstBytes = 64 << 10;

  void Grow(size_t capacity) {
    // Not cleared: make_unique would.
    std::unique_ptr<char[]> larger(new char[capacity]);
    if (size_ > 0) std::memcpy(larger.get(), bytes_.get(), size_);
    bytes_ = std::move(larger);
    capacity_ = capacity;
  }

  std::unique_ptr<char[]> bytes_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace sheaf
