#include "probe/faulty_calls.h"

#include <algorithm>
#include <string>
#include <utility>

namespace sheaf {
namespace {

// Nobody waits for a copy: a parked one need not stay long.
constexpr absl::Duration kCopyTimeoutMax = absl::Seconds(5);

}  // namespace

struct FaultyCalls::Copy {
  std::string method;
  std::unique_ptr<google::protobuf::Message> request;
  std::unique_ptr<google::protobuf::Message> response;
  CallOptions options;
};

FaultyCalls::~FaultyCalls() {
  MutexLock lock(mutex_);
  while (num_open_ > 0) all_done_.Wait(mutex_);
}

void FaultyCalls::Calm() { SetFaults({}); }

void FaultyCalls::SetFaults(const CallFaults& faults) {
  MutexLock lock(mutex_);
  faults_ = faults;
}

int64_t FaultyCalls::num_faults() const {
  MutexLock lock(mutex_);
  return num_faults_;
}

FaultyCalls::Fault FaultyCalls::Draw() {
  MutexLock lock(mutex_);
  double left = random_.Fraction();
  for (const auto& [fault, chance] : {std::pair(Fault::kTwice, faults_.twice),
                                      {Fault::kRepeatedLate, faults_.repeated_late},
                                      {Fault::kLate, faults_.late},
                                      {Fault::kAnswerLost, faults_.answer_lost}}) {
    if (left < chance) {
      ++num_faults_;
      return fault;
    }
    left -= chance;
  }
  return Fault::kNone;
}

std::shared_ptr<FaultyCalls::Copy> FaultyCalls::MakeCopy(std::string_view method,
                                                         const google::protobuf::Message& request,
                                                         const google::protobuf::Message& response,
                                                         const CallOptions& options) {
  auto copy = std::make_shared<Copy>();
  copy->method = method;
  copy->request.reset(request.New());
  copy->request->CopyFrom(request);
  copy->response.reset(response.New());
  copy->options = {.timeout = std::min(options.timeout, kCopyTimeoutMax)};
  Opened();
  return copy;
}

void FaultyCalls::Opened() {
  MutexLock lock(mutex_);
  ++num_open_;
}

void FaultyCalls::Closed() {
  // Notified under the lock: the destructor goes on as soon as it sees zero.
  MutexLock lock(mutex_);
  if (--num_open_ == 0) all_done_.NotifyAll();
}

void FaultyCalls::Send(const std::shared_ptr<Copy>& copy, std::function<void()> then) {
  inner_.CallMethod(copy->method, *copy->request, copy->response.get(), copy->options,
                    [this, copy, then = std::move(then)](const absl::Status&) {
                      if (then) then();
                      Closed();
                    });
}

void FaultyCalls::SendLate(std::shared_ptr<Copy> copy) {
  timer_.After(late_by_, [this, copy = std::move(copy)] { Send(copy, nullptr); });
}

void FaultyCalls::CallMethod(std::string_view method, const google::protobuf::Message& request,
                             google::protobuf::Message* response, const CallOptions& options, Done done) {
  switch (Draw()) {
    case Fault::kNone:
      break;
    case Fault::kTwice: {
      const std::shared_ptr<Copy> copy = MakeCopy(method, request, *response, options);
      inner_.CallMethod(method, request, response, options, std::move(done));
      return Send(copy, nullptr);
    }
    case Fault::kRepeatedLate:
      SendLate(MakeCopy(method, request, *response, options));
      break;
    case Fault::kLate:
      SendLate(MakeCopy(method, request, *response, options));
      Opened();
      return timer_.After(late_by_ / 10, [this, done = std::move(done)] {
        done(absl::UnavailableError("the call is delayed on its way (a fault of the test)"));
        Closed();
      });
    case Fault::kAnswerLost:
      return Send(MakeCopy(method, request, *response, options), [done = std::move(done)] {
        done(absl::UnavailableError("the answer got lost (a fault of the test)"));
      });
  }
  inner_.CallMethod(method, request, response, options, std::move(done));
}

}  // namespace sheaf
