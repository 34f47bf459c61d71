// MutateMessage: changes one field of a protobuf message, anywhere in it. Bytes flipped at random in a serialised
// message mostly break its framing, and then nothing behind the parser is ever reached.
//
//   SetByteMutator(LLVMFuzzerMutate);       // Once.
//   MutateMessage(contribution, random);
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>

#include "base/random.h"

namespace sheaf::fuzz {

// libFuzzer's own mutator of plain bytes.
using ByteMutator = size_t (*)(uint8_t* data, size_t size, size_t size_max);
void SetByteMutator(ByteMutator mutator);

// `data` becomes other bytes; returns their number. Needs SetByteMutator.
size_t MutateBytes(uint8_t* data, size_t size, size_t size_max);

void MutateMessage(google::protobuf::Message& message, Random& random);

// A mutator of inputs that are `prefix` bytes and a serialised message like `empty`.
size_t MutateSerialised(const google::protobuf::Message& empty, size_t prefix, uint8_t* data, size_t size,
                        size_t size_max, unsigned seed);

}  // namespace sheaf::fuzz
