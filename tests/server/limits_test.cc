// Every limit, by name: what happens at it, and that whoever runs into it is told its name, its value and what to do.
// The names come from the rows of the limits: one without a test here fails.
#include <fmt/format.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "aggregation/round_accumulator.h"
#include "aggregation/wire/safetensors.h"
#include "aggregation/wire/safetensors_patch.h"
#include "base/checksum.h"
#include "base/retry_hint.h"
#include "proto/time.h"
#include "server/calls/admission.h"
#include "server/calls/answer_books.h"
#include "server/core/broadcasts/open_blobs.h"
#include "server/core/requests/message_parts.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Code = absl::StatusCode;

constexpr absl::Duration kMinute = absl::Minutes(1);

absl::Status Create(CoreFederation& server, v1::RoundSpec spec, const std::string& request_id = "again") {
  v1::CreateRoundRequest request;
  request.set_request_id(request_id);
  *request.mutable_spec() = std::move(spec);
  return server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request).status();
}

v1::Lease LeaseOne(CoreFederation& server, const v1::RoundSpec& spec) {
  server.CreateRound(spec);
  const v1::SyncResponse response = server.Sync(Ask("w1", 1));
  REQUIRE(response.leases_size() == 1);
  return response.leases(0);
}

// Stands for the verdict REJECTED, which is no error.
constexpr Code kRejected = Code::kAborted;

// The reason why a contribution is rejected, as if it were a call's.
absl::Status HandIn(CoreFederation& server, const v1::RoundSpec& spec,
                    const std::function<void(v1::Contribution&)>& spoil) {
  v1::TaskResult result = Result(LeaseOne(server, spec), 1);
  v1::Contribution contribution;
  REQUIRE(contribution.ParseFromString(result.contribution()));
  spoil(contribution);
  result.set_contribution(contribution.SerializeAsString());
  v1::SyncRequest sync = Ask("w1", 0);
  *sync.add_results() = result;
  const auto response = server.Call<v1::SyncResponse>("WorkService/Sync", sync);
  if (!response.ok()) return response.status();
  REQUIRE(response->verdicts_size() == 1);
  const v1::ResultVerdict& verdict = response->verdicts(0);
  return verdict.verdict() == v1::ResultVerdict::REJECTED ? absl::Status(kRejected, verdict.message())
                                                          : absl::OkStatus();
}

v1::StartUploadRequest AnUpload(const std::string& request_id, int64_t size) {
  v1::StartUploadRequest request;
  request.set_request_id(request_id);
  request.set_size_bytes(size);
  request.set_digest(Sha256Hex(request_id));
  return request;
}

absl::Status Start(CoreFederation& server, const v1::StartUploadRequest& request) {
  return server.Call<v1::StartUploadResponse>("BlobService/StartUpload", request).status();
}

// The parked polls of "default".
int64_t NumParked(CoreFederation& server) { return server.core().polls().Num("default"); }

v1::SyncRequest Waiting(const std::string& worker) {
  v1::SyncRequest request = Ask(worker, 1);
  request.mutable_wait()->set_seconds(50);
  return request;
}

v1::RoundSpec KeyedRound() {
  v1::RoundSpec spec = SumRound(1);
  v1::OutputSpec& output = *spec.mutable_aggregate()->mutable_outputs(0);
  output.set_operator_("sparse_sum");
  output.set_dense_shape(0, 1'000'000);
  return spec;
}

class CountedCuts final : public AnsweredCall {
 public:
  std::function<void()> Cut() override {
    ++num_cuts;
    return [] {};
  }
  int num_cuts = 0;
};

// Chunks that one connection may have open, and smaller ones when half of its share is taken.
constexpr int kReadsOfAConnection = 7 + 70;

// What the last of so many reads of one connection hears after a while.
absl::Status LastOfReads(CoreFederation& server, int num_reads, absl::Duration after) {
  AnswerBooks books(server.core().limits());
  const absl::Time now = server.clock().Now();
  std::vector<AnswerEntry*> entries;
  absl::Status last = absl::DeadlineExceededError("it waits");
  for (int i = 0; i < num_reads; ++i) {
    books.Reserve(CallId(1), AnswerKind::kRead, {.connection = "c"}, now, [&](absl::StatusOr<AnswerEntry*> entry) {
      if (entry.ok()) entries.push_back(*entry);
      last = entry.status();
    });
  }
  books.Tick(now + after);
  absl::Status heard = last;
  books.Abandon(CallId(1));
  for (AnswerEntry* entry : entries) books.Release(entry);
  return heard;
}

// What is refused at a limit.
struct Refusal {
  std::function<void(Limits&)> set;
  // With the limit set so: what the caller hears.
  std::function<absl::Status(CoreFederation&)> provoke;
  Code code = Code::kResourceExhausted;
  // Whoever is refused is told when to come back.
  bool has_hint = false;
};

void AddRefusalsOfRequests(std::map<std::string, Refusal>& rows) {
  rows["request_bytes_max"] = {[](Limits& l) { l.request_bytes_max = 1000; },
                               [](CoreFederation& server) {
                                 return server.Enter("sheaf.v1.WorkService/Sync", *Identity::Anybody(), 1001,
                                                     server.clock().Now());
                               }};
  rows["request_parts_max"] = {[](Limits& l) { l.request_parts_max = 50; },
                               [](CoreFederation& server) {
                                 v1::SyncRequest request;
                                 for (int i = 0; i < 51; ++i) request.add_results();
                                 const std::string bytes = request.SerializeAsString();
                                 google::protobuf::io::ArrayInputStream stream(bytes.data(),
                                                                               static_cast<int>(bytes.size()));
                                 return server.parts().pipeline.CheckParts(*request.GetDescriptor(), stream);
                               }};
  rows["chunk_bytes_max"] = {[](Limits& l) { l.chunk_bytes_max = 10; },
                             [](CoreFederation& server) {
                               const auto started = server.Call<v1::StartUploadResponse>("BlobService/StartUpload",
                                                                                         AnUpload("broadcast", 100));
                               REQUIRE(started.ok());
                               v1::WriteChunkRequest chunk;
                               chunk.set_upload_id(started->upload_id());
                               chunk.set_data(std::string(11, 'x'));
                               return server.Call<v1::WriteChunkResponse>("BlobService/WriteChunk", chunk).status();
                             },
                             Code::kInvalidArgument};
  rows["sync_items_max"] = {
      [](Limits& l) { l.sync_items_max = 3; },
      [](CoreFederation& server) { return server.Call<v1::SyncResponse>("WorkService/Sync", Ask("w1", 4)).status(); },
      Code::kInvalidArgument};
}

void AddRefusalsUnderOverload(std::map<std::string, Refusal>& rows) {
  rows["queued_calls_max"] = {[](Limits& l) { l.queued_calls_max = 2; },
                              [](CoreFederation& server) {
                                v1::SyncRequest request;
                                v1::SyncResponse response;
                                for (int i = 0; i < 2; ++i) {
                                  server.dispatcher().Dispatch("sheaf.v1.WorkService/Sync", {}, request, &response,
                                                               [](auto) {});
                                }
                                const auto enter = [&](const char* method) {
                                  return server.Enter(method, *Identity::Anybody(), 1, server.clock().Now());
                                };
                                CHECK(enter("sheaf.v1.InspectionService/DescribeQueue").ok());
                                absl::Status refused = enter("sheaf.v1.WorkService/Sync");
                                // They are done in the end, and others are let in.
                                server.Run();
                                CHECK(enter("sheaf.v1.WorkService/Sync").ok());
                                return refused;
                              },
                              Code::kResourceExhausted, true};
  rows["queue_wait_max_ms"] = {[](Limits& l) { l.queue_wait_max = absl::Milliseconds(77); },
                               [](CoreFederation& server) {
                                 v1::SyncRequest request;
                                 v1::SyncResponse response;
                                 const auto enter = [&](const char* method) {
                                   return server.Enter(method, *Identity::Anybody(), 1, server.clock().Now());
                                 };
                                 const auto call = [&] {
                                   CHECK(enter("sheaf.v1.WorkService/Sync").ok());
                                   server.dispatcher().Dispatch("sheaf.v1.WorkService/Sync", {}, request, &response,
                                                                [](auto) {});
                                 };
                                 // One that waits long is no overload, and a crowd that does not is none either.
                                 call();
                                 server.clock().Advance(absl::Seconds(5));
                                 call();
                                 server.Run();
                                 for (int i = 0; i < 256; ++i) call();
                                 CHECK(enter("sheaf.v1.WorkService/Sync").ok());
                                 server.clock().Advance(absl::Milliseconds(78));
                                 absl::Status refused = enter("sheaf.v1.WorkService/Sync");
                                 CHECK(enter("sheaf.v1.InspectionService/DescribeQueue").ok());
                                 server.Run();
                                 CHECK(enter("sheaf.v1.WorkService/Sync").ok());
                                 return refused;
                               },
                               Code::kResourceExhausted, true};
  rows["queued_inspections_max"] = {
      [](Limits& l) { l.queued_inspections_max = 1; },
      [](CoreFederation& server) {
        v1::DescribeQueueRequest request;
        v1::DescribeQueueResponse response;
        server.dispatcher().Dispatch("sheaf.v1.InspectionService/DescribeQueue", {}, request, &response, [](auto) {});
        absl::Status refused =
            server.Enter("sheaf.v1.InspectionService/DescribeQueue", *Identity::Anybody(), 1, server.clock().Now());
        server.Run();
        return refused;
      },
      Code::kResourceExhausted, true};
  rows["open_request_bytes_max"] = {[](Limits& l) { l.open_request_bytes_max = 100'000; },
                                    [](CoreFederation& server) {
                                      const auto enter = [&](int64_t bytes) {
                                        return server.Enter("sheaf.v1.WorkService/Sync", *Identity::Anybody(), bytes,
                                                            server.clock().Now());
                                      };
                                      CHECK(enter(90'000).ok());
                                      absl::Status refused = enter(10'001);
                                      server.parts().admission.Leave(*Identity::Anybody(), 90'000);
                                      CHECK(enter(10'001).ok());
                                      return refused;
                                    },
                                    Code::kResourceExhausted, true};
  rows["calls_per_second_max"] = {[](Limits& l) { l.calls_per_second_max = 5; },
                                  [](CoreFederation& server) {
                                    const auto enter = [&](const std::string& who) {
                                      Identity identity;
                                      identity.name = who;
                                      return server.Enter("sheaf.v1.WorkService/Sync", identity, 1,
                                                          server.clock().Now());
                                    };
                                    for (int i = 0; i < 5; ++i) CHECK(enter("greedy").ok());
                                    absl::Status refused = enter("greedy");
                                    CHECK(enter("modest").ok());
                                    server.clock().Advance(absl::Milliseconds(200));
                                    CHECK(enter("greedy").ok());
                                    CHECK_FALSE(enter("greedy").ok());
                                    return refused;
                                  },
                                  Code::kResourceExhausted, true};
}

void AddRefusalsOfAnswers(std::map<std::string, Refusal>& rows) {
  rows["watches_max"] = {[](Limits& l) { l.watches_max = 1; },
                         [](CoreFederation& server) {
                           const std::string round = server.CreateRound(SumRound(1));
                           v1::GetRoundRequest watch;
                           watch.set_round(round);
                           watch.set_etag(server.GetRound(round).etag());
                           watch.mutable_wait()->set_seconds(50);
                           const auto first = server.CallLater<v1::GetRoundResponse>("RoundService/GetRound", watch);
                           absl::Status refused =
                               server.Call<v1::GetRoundResponse>("RoundService/GetRound", watch).status();
                           CHECK_FALSE(first->has_value());
                           return refused;
                         },
                         Code::kResourceExhausted, true};
  // See also answer_books_test.cc.
  rows["open_answer_bytes_max"] = {
      [](Limits& l) { l.open_answer_bytes_max = 80'000; },
      [](CoreFederation& server) {
        AnswerBooks books(server.core().limits());
        const AnswerClient client = {.connection = "c"};
        CountedCuts call;
        AnswerEntry* entry = books.Take(client, 10'000, server.clock().Now(), call).value();
        absl::Status refused = books.Take(client, 10'000, server.clock().Now(), call).status();
        books.Release(entry);
        return refused;
      },
      Code::kResourceExhausted, true};
  rows["waiting_answers_max"] = {
      [](Limits& l) { l.waiting_answers_max = 2; },
      [](CoreFederation& server) { return LastOfReads(server, 3 + kReadsOfAConnection, absl::ZeroDuration()); },
      Code::kResourceExhausted, true};
  rows["answer_wait_max_ms"] = {
      [](Limits& l) { l.answer_wait_max = absl::Milliseconds(77); },
      [](CoreFederation& server) { return LastOfReads(server, 1 + kReadsOfAConnection, absl::Milliseconds(77)); },
      Code::kResourceExhausted, true};
}

void AddRefusalsOfWorkersAndTokens(std::map<std::string, Refusal>& rows) {
  rows["workers_max"] = {[](Limits& l) { l.workers_max = 2; },
                         [](CoreFederation& server) {
                           server.Sync(Ask("w1", 1));
                           server.Sync(Ask("w2", 1));
                           const auto third = server.Call<v1::SyncResponse>("WorkService/Sync", Ask("w3", 1));
                           server.Sync(Ask("w2", 1));
                           // They are forgotten.
                           server.Advance(absl::Minutes(21));
                           server.Sync(Ask("w3", 1));
                           return third.status();
                         },
                         Code::kResourceExhausted, true};
  rows["workers_per_identity_max"] = {[](Limits& l) { l.workers_per_identity_max = 2; },
                                      [](CoreFederation& server) {
                                        server.Sync(Ask("w1", 1));
                                        server.Sync(Ask("w2", 1));
                                        const auto third =
                                            server.Call<v1::SyncResponse>("WorkService/Sync", Ask("w3", 1));
                                        server.Advance(absl::Minutes(21));
                                        server.Sync(Ask("w3", 1));
                                        return third.status();
                                      },
                                      Code::kResourceExhausted, true};
  rows["worker_bytes_max"] = {[](Limits& l) { l.worker_bytes_max = 100; },
                              [](CoreFederation& server) {
                                v1::SyncRequest request = Ask("w1", 1);
                                (*request.mutable_labels())["zone"] = std::string(100, 'z');
                                return server.Call<v1::SyncResponse>("WorkService/Sync", request).status();
                              }};
  rows["tokens_max"] = {[](Limits& l) { l.tokens_max = 1; },
                        [](CoreFederation& server) {
                          v1::CreateTokenRequest token;
                          token.set_request_id("first");
                          token.set_name("admin");
                          token.add_roles(v1::OPERATOR);
                          absl::Status refused;
                          server.Post([&](absl::Time now) {
                            CHECK(server.core().access().Create(token, *Identity::Anybody(), now).ok());
                            token.set_request_id("second");
                            refused = server.core().access().Create(token, *Identity::Anybody(), now).status();
                          });
                          server.Run();
                          return refused;
                        }};
}

void AddRefusalsOfRounds(std::map<std::string, Refusal>& rows) {
  rows["tasks_per_round_max"] = {[](Limits& l) { l.tasks_per_round_max = 3; },
                                 [](CoreFederation& server) { return Create(server, SumRound(4)); }};
  rows["outputs_per_round_max"] = {[](Limits& l) { l.outputs_per_round_max = 1; },
                                   [](CoreFederation& server) {
                                     v1::RoundSpec spec = SumRound(1);
                                     *spec.mutable_aggregate()->add_outputs() = spec.aggregate().outputs(0);
                                     return Create(server, spec);
                                   }};
  rows["task_payload_bytes_max"] = {[](Limits& l) { l.task_payload_bytes_max = 10; },
                                    [](CoreFederation& server) {
                                      v1::RoundSpec config = SumRound(1);
                                      config.mutable_computation()->set_config("eleven char");
                                      CHECK_THAT(Create(server, config).ToString(), Contains("task_payload_bytes_max"));
                                      v1::RoundSpec spec = SumRound(1);
                                      spec.mutable_listed()->mutable_tasks(0)->set_payload("eleven char");
                                      return Create(server, spec);
                                    }};
  rows["data_selector_bytes_max"] = {[](Limits& l) { l.data_selector_bytes_max = 3; },
                                     [](CoreFederation& server) { return Create(server, SumRound(1)); }};
  rows["round_payload_bytes_max"] = {[](Limits& l) { l.round_payload_bytes_max = 500; },
                                     [](CoreFederation& server) {
                                       CHECK_THAT(Create(server, SumRound(100)).ToString(),
                                                  Contains("round_payload_bytes_max"));
                                       v1::RoundSpec spec = SumRound(0);
                                       spec.mutable_open_slots()->set_count(100);
                                       spec.mutable_open_slots()->mutable_task()->set_payload("six ch");
                                       return Create(server, spec);
                                     }};
  rows["round_spec_bytes_max"] = {[](Limits& l) { l.round_spec_bytes_max = 1000; },
                                  [](CoreFederation& server) {
                                    v1::RoundSpec spec = SumRound(1);
                                    spec.mutable_computation()->set_config(std::string(1000, 'c'));
                                    return Create(server, spec);
                                  }};
  rows["live_rounds_max"] = {[](Limits& l) { l.live_rounds_max = 1; },
                             [](CoreFederation& server) {
                               server.CreateRound(SumRound(1));
                               return Create(server, SumRound(1));
                             }};
  rows["live_tasks_max"] = {[](Limits& l) { l.live_tasks_max = 9; },
                            [](CoreFederation& server) {
                              const std::string round = server.CreateRound(SumRound(8));
                              absl::Status refused = Create(server, SumRound(3));
                              server.CrashAndRestart();
                              CHECK(Create(server, SumRound(3)).code() == Code::kResourceExhausted);
                              CHECK(Create(server, SumRound(1), "fits").ok());
                              v1::CancelRoundRequest cancel;
                              cancel.set_request_id("cancel");
                              cancel.set_round(round);
                              REQUIRE(server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", cancel).ok());
                              CHECK(Create(server, SumRound(8), "has room again").ok());
                              return refused;
                            }};
  rows["accumulator_bytes_max"] = {[](Limits& l) { l.accumulator_bytes_max = 1000; },
                                   [](CoreFederation& server) {
                                     v1::RoundSpec spec = SumRound(1);
                                     spec.mutable_aggregate()->mutable_outputs(0)->set_dense_shape(0, 1000);
                                     return Create(server, spec);
                                   }};
}

void AddRefusalsOfContributions(std::map<std::string, Refusal>& rows) {
  rows["contribution_bytes_max"] = {[](Limits& l) { l.contribution_bytes_max = 20; },
                                    [](CoreFederation& server) {
                                      v1::StartUploadRequest upload = AnUpload("contribution", 21);
                                      upload.mutable_contribution()->set_task("r-1/0");
                                      CHECK_THAT(Start(server, upload).ToString(), Contains("contribution_bytes_max"));
                                      return HandIn(server, SumRound(1), [](v1::Contribution&) {});
                                    },
                                    kRejected};
  rows["contribution_entries_max"] = {[](Limits& l) { l.contribution_entries_max = 3; },
                                      [](CoreFederation& server) {
                                        return HandIn(server, KeyedRound(), [](v1::Contribution& contribution) {
                                          v1::SparseTensor& sparse = *contribution.mutable_outputs(0)->mutable_sparse();
                                          sparse.mutable_indices()->add_shape(4);
                                        });
                                      },
                                      kRejected};
  rows["contribution_parts_max"] = {[](Limits& l) { l.contribution_parts_max = 50'000; },
                                    [](CoreFederation& server) {
                                      return HandIn(server, KeyedRound(), [](v1::Contribution& contribution) {
                                        v1::KeyedTable& table = *contribution.mutable_outputs(0)->mutable_keyed();
                                        for (int i = 0; i < 60'000; ++i) table.add_string_keys("");
                                      });
                                    },
                                    kRejected};
  rows["spool_bytes_max"] = {[](Limits& l) { l.spool_bytes_max = 60; },
                             [](CoreFederation& server) {
                               const std::string round = server.CreateRound(SumRound(3));
                               const v1::SyncResponse granted = server.Sync(Ask("w1", 3));
                               absl::Status refused;
                               for (const v1::Lease& lease : granted.leases()) {
                                 v1::SyncRequest sync = Ask("w1", 0);
                                 *sync.add_results() = Result(lease, 1);
                                 absl::Status status = server.Call<v1::SyncResponse>("WorkService/Sync", sync).status();
                                 // A checkpoint makes room meanwhile.
                                 if (!status.ok()) {
                                   refused = status;
                                   server.Sync(sync);
                                 }
                               }
                               CHECK(server.GetRound(round).state() == v1::SUCCEEDED);
                               CHECK(server.GetRound(round).aggregate().num_contributions() == 3);
                               return refused;
                             },
                             Code::kResourceExhausted, true};
  rows["unfolded_bytes_max"] = {[](Limits& l) { l.unfolded_bytes_max = 1500; },
                                [](CoreFederation& server) -> absl::Status {
                                  const std::string round = server.CreateRound(SumRound(2));
                                  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
                                  v1::SyncRequest both = Ask("w", 0);
                                  *both.add_results() = Result(granted.leases(0), 1);
                                  *both.add_results() = Result(granted.leases(1), 1);
                                  absl::Status refused =
                                      server.Call<v1::SyncResponse>("WorkService/Sync", both).status();
                                  // The first is folded by now, and the second finds room.
                                  const v1::SyncResponse again = server.Sync(both);
                                  CHECK(again.verdicts(0).verdict() == v1::ResultVerdict::DUPLICATE);
                                  CHECK(again.verdicts(1).verdict() == v1::ResultVerdict::ACCEPTED);
                                  CHECK(server.GetRound(round).aggregate().num_contributions() == 2);
                                  return refused;
                                },
                                Code::kResourceExhausted, true};
  rows["metrics_max"] = {[](Limits& l) { l.metrics_max = 3; },
                         [](CoreFederation& server) {
                           const auto add = [](const std::string& prefix) {
                             return [prefix](v1::Contribution& contribution) {
                               for (int i = 0; i < 2; ++i)
                                 (*contribution.mutable_metrics())[prefix + std::to_string(i)] = 1;
                             };
                           };
                           v1::RoundSpec spec = SumRound(3);
                           CHECK(HandIn(server, spec, add("a")).ok());
                           return HandIn(server, spec, [](v1::Contribution& contribution) {
                             for (int i = 0; i < 4; ++i) (*contribution.mutable_metrics())["b" + std::to_string(i)] = 1;
                           });
                         },
                         kRejected};
  rows["metric_name_bytes_max"] = {[](Limits& l) { l.metric_name_bytes_max = 8; },
                                   [](CoreFederation& server) {
                                     return HandIn(server, SumRound(1), [](v1::Contribution& contribution) {
                                       (*contribution.mutable_metrics())["nine char"] = 1;
                                     });
                                   },
                                   kRejected};
}

void AddRefusalsOfUploads(std::map<std::string, Refusal>& rows) {
  rows["upload_bytes_max"] = {[](Limits& l) { l.upload_bytes_max = 1000; },
                              [](CoreFederation& server) {
                                CHECK(Start(server, AnUpload("one", 600)).ok());
                                CHECK(Start(server, AnUpload("one", 600)).ok());
                                return Start(server, AnUpload("two", 401));
                              },
                              Code::kResourceExhausted, true};
  rows["memory_upload_bytes_max"] = {[](Limits& l) { l.memory_upload_bytes_max = 1000; },
                                     [](CoreFederation& server) {
                                       v1::RoundSpec spec = SumRound(2);
                                       spec.set_durability(v1::EPHEMERAL);
                                       server.CreateRound(spec);
                                       const v1::SyncResponse granted = server.Sync(Ask("w1", 2));
                                       const auto start = [&](int task, int64_t size) {
                                         v1::StartUploadRequest request = AnUpload("contribution", size);
                                         const v1::Lease& lease = granted.leases(task);
                                         request.mutable_contribution()->set_task(lease.task());
                                         request.mutable_contribution()->set_lease_token(lease.lease_token());
                                         return Start(server, request);
                                       };
                                       CHECK(start(0, 600).ok());
                                       CHECK(start(0, 600).ok());
                                       absl::Status refused = start(1, 401);
                                       CHECK(start(1, 400).ok());
                                       // The disk has room of its own.
                                       CHECK(Start(server, AnUpload("broadcast", 1001)).ok());
                                       return refused;
                                     },
                                     Code::kResourceExhausted, true};
  rows["uploads_max"] = {[](Limits& l) { l.uploads_max = 1; },
                         [](CoreFederation& server) {
                           CHECK(Start(server, AnUpload("one", 600)).ok());
                           return Start(server, AnUpload("two", 1));
                         },
                         Code::kResourceExhausted, true};
  rows["uploads_per_identity_max"] = {[](Limits& l) { l.uploads_per_identity_max = 1; },
                                      [](CoreFederation& server) {
                                        CHECK(Start(server, AnUpload("one", 600)).ok());
                                        absl::Status refused = Start(server, AnUpload("two", 1));
                                        // It is forgotten.
                                        for (int i = 0; i < 65; ++i) server.Advance(absl::Minutes(1));
                                        CHECK(Start(server, AnUpload("two", 1)).ok());
                                        return refused;
                                      },
                                      Code::kResourceExhausted, true};
  rows["broadcast_bytes_max"] = {[](Limits& l) { l.broadcast_bytes_max = 1000; },
                                 [](CoreFederation& server) { return Start(server, AnUpload("one", 1001)); }};
  const auto upload_broadcast = [](CoreFederation& server, const std::string& bytes) {
    v1::StartUploadRequest start = AnUpload("broadcast", static_cast<int64_t>(bytes.size()));
    start.set_digest(Sha256Hex(bytes));
    const auto started = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start);
    REQUIRE(started.ok());
    v1::WriteChunkRequest chunk;
    chunk.set_upload_id(started->upload_id());
    chunk.set_data(bytes);
    REQUIRE(server.Call<v1::WriteChunkResponse>("BlobService/WriteChunk", chunk).ok());
    v1::FinishUploadRequest finish;
    finish.set_upload_id(started->upload_id());
    return server.Call<v1::FinishUploadResponse>("BlobService/FinishUpload", finish).status();
  };
  const auto finish_broadcast = [=](CoreFederation& server, const std::string& header) {
    const uint64_t size = header.size();
    return upload_broadcast(server, std::string(reinterpret_cast<const char*>(&size), sizeof size) + header);
  };
  rows["safetensors_header_bytes_max"] = {
      [](Limits& l) { l.safetensors_header_bytes_max = 100; },
      [=](CoreFederation& server) { return finish_broadcast(server, "{" + std::string(99, ' ') + "}"); }};
  rows["safetensors_tensors_max"] = {
      [](Limits& l) { l.safetensors_tensors_max = 1; },
      [=](CoreFederation& server) {
        return finish_broadcast(server,
                                R"({"__metadata__":{"a":"b"},"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})");
      }};
  rows["safetensors_name_bytes_max"] = {[](Limits& l) { l.safetensors_name_bytes_max = 3; },
                                        [=](CoreFederation& server) {
                                          return finish_broadcast(
                                              server, R"({"name":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})");
                                        }};
  // Two patches of two rows each, one upon the other: what the second hears. See also broadcast_patch_test.cc.
  const auto patch_twice = [=](CoreFederation& server) {
    std::string last = EncodeSafetensors(std::vector<NamedTensor>{{"w", v1::UINT8, {2}, "ab"}}, {});
    CHECK(upload_broadcast(server, last).ok());
    absl::Status heard;
    for (const char* values : {"cd", "ef"}) {
      CHECK(heard.ok());
      const std::vector<int64_t> both = {0, 1};
      const TensorChange change = {.tensor = "w", .rows = both, .dtype = v1::UINT8, .shape = {2}, .data = values};
      last = EncodeSafetensorsPatch(Sha256Hex(last), {&change, 1});
      heard = upload_broadcast(server, last);
    }
    return heard;
  };
  rows["broadcast_patches_max"] = {[](Limits& l) { l.broadcast_patches_max = 1; }, patch_twice};
  rows["patched_rows_max"] = {[](Limits& l) { l.patched_rows_max = 3; }, patch_twice};
}

std::map<std::string, Refusal> Refusals() {
  std::map<std::string, Refusal> rows;
  AddRefusalsOfRequests(rows);
  AddRefusalsUnderOverload(rows);
  AddRefusalsOfAnswers(rows);
  AddRefusalsOfWorkersAndTokens(rows);
  AddRefusalsOfRounds(rows);
  AddRefusalsOfContributions(rows);
  AddRefusalsOfUploads(rows);
  return rows;
}

Limits With(const std::function<void(Limits&)>& set) {
  Limits limits;
  set(limits);
  return limits;
}

void AddEffectsOnAnswers(std::map<std::string, std::function<void()>>& rows) {
  rows["inline_bytes_max"] = [=] {
    CoreFederation server(With([](Limits& l) { l.inline_bytes_max = 77; }));
    CHECK(server.Sync(Ask("w1", 1)).inline_bytes_max() == 77);
  };
  rows["page_size_max"] = [=] {
    CoreFederation server(With([](Limits& l) { l.page_size_max = 2; }));
    server.CreateRound(SumRound(3));
    v1::ListTasksRequest list;
    list.set_page_size(1000);
    CHECK(server.Call<v1::ListTasksResponse>("InspectionService/ListTasks", list)->tasks_size() == 2);
  };
  rows["page_bytes_max"] = [=] {
    // Two of 300 bytes each are more: one each. What is on the pages together is everything, once.
    CoreFederation server(With([](Limits& l) { l.page_bytes_max = 500; }));
    for (int i = 0; i < 3; ++i) {
      v1::RoundSpec spec = SumRound(1);
      spec.mutable_computation()->set_config(std::string(300, 'c'));
      server.CreateRound(spec);
      v1::SyncRequest worker = Ask("w" + std::to_string(i), 1);
      (*worker.mutable_labels())["zone"] = std::string(300, 'z');
      const v1::Lease lease = server.Sync(worker).leases(0);
      *worker.add_results() = Failure(lease, std::string(300, 'f'), true);
      server.Sync(worker);
    }
    const auto check = [&](auto request, auto response, const std::string& method, auto items) {
      std::set<std::string> names;
      int num_pages = 0;
      do {
        auto page = server.Call<decltype(response)>(method, request);
        REQUIRE(page.ok());
        CHECK(items(*page).size() <= 1);
        for (const auto& item : items(*page)) CHECK(names.insert(item.ShortDebugString()).second);
        request.set_page_token(page->next_page_token());
        REQUIRE(++num_pages < 10);
      } while (!request.page_token().empty());
      CHECK(names.size() == 3);
    };
    check(v1::ListRoundsRequest(), v1::ListRoundsResponse(), "RoundService/ListRounds",
          [](const auto& page) { return page.rounds(); });
    check(v1::ListTasksRequest(), v1::ListTasksResponse(), "InspectionService/ListTasks",
          [](const auto& page) { return page.tasks(); });
    check(v1::ListWorkersRequest(), v1::ListWorkersResponse(), "InspectionService/ListWorkers",
          [](const auto& page) { return page.workers(); });
  };
  // See also core_lease_test.cc.
  rows["sync_leases_bytes_max"] = [=] {
    CoreFederation server(With([](Limits& l) { l.sync_leases_bytes_max = 10; }));
    server.CreateRound(SumRound(3));
    CHECK(server.Sync(Ask("w1", 3)).leases_size() == 1);
  };
  rows["batch_leases_bytes_max"] = [=] {
    CoreFederation server(With([](Limits& l) { l.batch_leases_bytes_max = 1; }));
    server.CreateRound(SumRound(2));
    v1::SyncResponse first, second;
    const v1::SyncRequest one = Ask("w1", 1);
    const v1::SyncRequest two = Ask("w2", 1);
    server.dispatcher().Dispatch("sheaf.v1.WorkService/Sync", {}, one, &first, [](auto) {});
    server.dispatcher().Dispatch("sheaf.v1.WorkService/Sync", {}, two, &second, [](auto) {});
    server.Run();
    CHECK(first.leases_size() + second.leases_size() == 1);
    CHECK(server.Sync(two).leases_size() == 1);
  };
  rows["answer_time_max_ms"] = [=] {
    AnswerBooks books(With([](Limits& l) { l.answer_time_max = absl::Seconds(7); }));
    const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
    CountedCuts call;
    AnswerEntry* entry = books.Take({.connection = "c"}, 1000, now, call).value();
    books.Tick(now + absl::Seconds(6));
    CHECK(call.num_cuts == 0);
    books.Tick(now + absl::Seconds(7));
    CHECK(call.num_cuts == 1);
    books.Release(entry);
  };
  // The newest poll is sent away; the others go on waiting, and so does the next when there is room.
  rows["open_header_bytes_max"] = [=] {
    // Two headers: so much that both are kept, or only the newer.
    for (const bool is_enough : {true, false}) {
      CoreFederation server;
      const Limits limits = With([=](Limits& l) { l.open_header_bytes_max = is_enough ? 64 << 10 : 1; });
      OpenBlobs open(server.payloads(), limits);
      std::vector<int64_t> bytes;
      for (const char* name : {"a", "b"}) {
        const std::string file = EncodeSafetensors(std::vector<NamedTensor>{{name, v1::UINT8, {0}, ""}}, {});
        const auto blob = open.OpenTensors(*server.payloads().PutBlob(file));
        REQUIRE(blob.ok());
        bytes.push_back((*blob)->header().memory_bytes());
      }
      CHECK(open.header_bytes() == bytes[1] + (is_enough ? bytes[0] : 0));
    }
  };
}

void AddEffectsOnPolls(std::map<std::string, std::function<void()>>& rows) {
  rows["parked_polls_max"] = [=] {
    CoreFederation server(With([](Limits& l) { l.parked_polls_max = 2; }));
    server.CallLater<v1::SyncResponse>("WorkService/Sync", Waiting("w1"));
    server.CallLater<v1::SyncResponse>("WorkService/Sync", Waiting("w2"));
    const v1::SyncResponse sent_away = server.Sync(Waiting("w3"));
    CHECK(FromProto(sent_away.next_min()) == absl::Seconds(5));
    CHECK(FromProto(sent_away.next_max()) == absl::Seconds(10));
    CHECK(NumParked(server) == 2);
    server.Advance(absl::Seconds(51));
    server.CallLater<v1::SyncResponse>("WorkService/Sync", Waiting("w3"));
    CHECK(NumParked(server) == 1);
  };
  rows["idle_calls_per_second"] = [=] {
    CoreFederation server(With([](Limits& l) { l.idle_calls_per_second = 1; }));
    for (const char* name : {"w1", "w2", "w3"}) server.Sync(Ask(name, 1));
    CHECK(FromProto(server.Sync(Ask("w4", 1)).next_min()) > absl::Seconds(1));
  };
  rows["next_call_max_ms"] = [=] {
    CoreFederation server(With([](Limits& l) {
      l.idle_calls_per_second = 1;
      l.next_call_max = absl::Seconds(5);
    }));
    for (int i = 0; i < 30; ++i) {
      CHECK(FromProto(server.Sync(Ask("w" + std::to_string(i), 1)).next_min()) <= absl::Seconds(5));
    }
  };
  rows["parked_poll_bytes_max"] = [=] {
    CoreFederation server(With([](Limits& l) { l.parked_poll_bytes_max = 200; }));
    v1::SyncRequest large = Waiting("w1");
    (*large.mutable_labels())["zone"] = std::string(200, 'z');
    CHECK(server.Sync(large).leases().empty());
    CHECK(NumParked(server) == 0);
  };
  // However often it asks, under whatever poll_id, whether it says what it has or conceals it.
  rows["leases_per_worker_max"] = [=] {
    CoreFederation server(With([](Limits& l) { l.leases_per_worker_max = 5; }));
    const std::string round = server.CreateRound(SumRound(50));
    v1::SyncRequest honest = Ask("honest", 3);
    for (int i = 0; i < 5; ++i) {
      CHECK(server.Sync(Ask("greedy", 3)).leases_size() == 3);
      const v1::SyncResponse response = server.Sync(honest);
      CHECK(response.suggested_concurrency() == (honest.held_size() == 5 ? 5 : 0));
      v1::SyncRequest next = Ask("honest", 3);
      *next.mutable_held() = honest.held();
      for (const v1::Lease& lease : response.leases()) *next.add_held() = Held(lease, 1);
      honest = next;
    }
    CHECK(honest.held_size() == 5);
    CHECK(server.GetRound(round).tasks().leased() == 3 + 5);
    CHECK(server.Sync(Ask("modest", 3)).leases_size() == 3);
  };
  rows["poll_wait_max_ms"] = [=] {
    CoreFederation server(With([](Limits& l) { l.poll_wait_max = absl::Seconds(2); }));
    const auto poll = server.CallLater<v1::SyncResponse>("WorkService/Sync", Waiting("w1"));
    server.Advance(absl::Seconds(2));
    CHECK(poll->has_value());
  };
  rows["population_percent_max"] = [=] {
    CoreFederation server(With([](Limits& l) {
      l.population_percent_max = 50;
      l.live_rounds_max = 4;
    }));
    CHECK(Create(server, SumRound(1), "first").ok());
    CHECK(Create(server, SumRound(1), "second").ok());
    const absl::Status refused = Create(server, SumRound(1), "third");
    CHECK_THAT(refused.ToString(), Contains("population_percent_max = 50") && Contains("live_rounds_max = 4"));
    v1::RoundSpec other = SumRound(1);
    other.set_population("other");
    CHECK(Create(server, other, "of another").ok());
  };
}

void AddEffectsOnDefaultsOfRounds(std::map<std::string, std::function<void()>>& rows) {
  rows["lease_default_ms"] = [=] {
    CoreFederation server(With([](Limits& l) { l.lease_default = absl::Seconds(7); }));
    CHECK(FromProto(LeaseOne(server, SumRound(1)).remaining()) == absl::Seconds(7));
  };
  rows["round_deadline_default_ms"] = [=] {
    CoreFederation server(With([](Limits& l) { l.round_deadline_default = absl::Seconds(9); }));
    const std::string round = server.CreateRound(SumRound(1));
    server.Advance(absl::Seconds(9));
    CHECK(server.GetRound(round).state() == v1::FAILED);
  };
  const auto attempts = [](CoreFederation& server, bool fails) {
    const std::string round = server.CreateRound(SumRound(1));
    int granted = 0;
    for (int i = 0; i < 20; ++i) {
      const v1::SyncResponse response = server.Sync(Ask("w1", 1));
      for (const v1::Lease& lease : response.leases()) {
        ++granted;
        if (!fails) continue;
        v1::SyncRequest sync = Ask("w1", 0);
        *sync.add_results() = Failure(lease, "no luck");
        server.Sync(sync);
      }
      server.Advance(kMinute);
    }
    return granted;
  };
  rows["failed_attempts_max"] = [=] {
    CoreFederation server(With([](Limits& l) { l.failed_attempts_max = 2; }));
    CHECK(attempts(server, true) == 2);
  };
  rows["lost_attempts_max"] = [=] {
    CoreFederation server(With([](Limits& l) { l.lost_attempts_max = 3; }));
    CHECK(attempts(server, false) == 3);
  };
  const auto pause_after_failure = [](CoreFederation& server) {
    const v1::Lease lease = LeaseOne(server, SumRound(1));
    v1::SyncRequest sync = Ask("w1", 0);
    *sync.add_results() = Failure(lease, "no luck");
    server.Sync(sync);
    return server.store().GetTaskState(*TaskId::Parse(lease.task()))->available_time - server.clock().Now();
  };
  rows["retry_backoff_base_ms"] = [=] {
    CoreFederation server(With([](Limits& l) { l.retry_backoff_base = absl::Milliseconds(1); }));
    CHECK(pause_after_failure(server) <= absl::Milliseconds(1));
  };
  rows["retry_backoff_max_ms"] = [=] {
    CoreFederation server(With([](Limits& l) {
      l.retry_backoff_base = absl::Hours(1);
      l.retry_backoff_max = absl::Milliseconds(2);
    }));
    CHECK(pause_after_failure(server) <= absl::Milliseconds(2));
  };
}

void AddEffectsOnWhatIsKept(std::map<std::string, std::function<void()>>& rows) {
  rows["unreferenced_keep_ms"] = [=] {
    CoreFederation server(With([](Limits& l) { l.unreferenced_keep = absl::Minutes(2); }));
    REQUIRE(Start(server, AnUpload("one", 600)).ok());
    server.Advance(absl::Minutes(12));
    CHECK(server.payloads().GetUploadUse("").num_uploads == 0);
  };
  const auto kept_rounds = [](CoreFederation& server, int num_rounds, absl::Duration later) {
    for (int i = 0; i < num_rounds; ++i) {
      const v1::Lease lease = LeaseOne(server, SumRound(1));
      v1::SyncRequest sync = Ask("w1", 0);
      *sync.add_results() = Result(lease, 1);
      server.Sync(sync);
    }
    server.Advance(later);
    return server.Call<v1::ListRoundsResponse>("RoundService/ListRounds", v1::ListRoundsRequest())->rounds_size();
  };
  rows["ended_keep_ms"] = [=] {
    CoreFederation server(With([](Limits& l) { l.ended_keep = kMinute; }));
    CHECK(kept_rounds(server, 3, 2 * kMinute) == 0);
  };
  rows["ended_rounds_max"] = [=] {
    CoreFederation server(With([](Limits& l) { l.ended_rounds_max = 1; }));
    CHECK(kept_rounds(server, 3, kMinute) == 1);
  };
  rows["worker_records_max"] = [=] {
    CoreFederation server(With([](Limits& l) {
      l.workers_max = 1;
      l.worker_records_max = 2;
    }));
    for (const char* name : {"w1", "w2", "w3"}) {
      server.Sync(Ask(name, 0));
      server.Advance(absl::Minutes(21));
    }
    const auto known = server.store().ListWorkers({});
    REQUIRE(known->size() == 2);
    CHECK(known->front().name == WorkerName("w2"));
    CHECK(known->back().name == WorkerName("w3"));
  };
  const auto broadcast_after = [](CoreFederation& server, absl::Duration later) {
    const std::string digest = *server.payloads().PutBlob("a broadcast");
    v1::RoundSpec spec = SumRound(1);
    spec.set_broadcast_digest(digest);
    v1::SyncRequest sync = Ask("w1", 0);
    *sync.add_results() = Result(LeaseOne(server, spec), 1);
    server.Sync(sync);
    server.Advance(later);
    return server.payloads().HasBlob(digest);
  };
  rows["broadcast_linger_ms"] = [=] {
    CoreFederation server(With([](Limits& l) { l.broadcast_linger = absl::Seconds(5); }));
    CHECK(broadcast_after(server, absl::Seconds(4)));
    CHECK_FALSE(broadcast_after(server, absl::Seconds(5)));
  };
  rows["lingering_bytes_max"] = [] {
    CoreFederation server(With([](Limits& l) { l.lingering_bytes_max = 8; }));
    v1::RoundSpec spec = SumRound(1);
    std::vector<std::string> models;
    for (const std::string bytes : {"model 1", "model 2"}) {
      spec.set_broadcast_digest(models.emplace_back(*server.payloads().PutBlob(bytes)));
      server.CreateRound(spec);
      REQUIRE(Contribute(server, "w1", 1) == v1::ResultVerdict::ACCEPTED);
    }
    server.Advance(absl::Milliseconds(1));
    CHECK_FALSE(server.payloads().HasBlob(models[0]));
    CHECK(server.payloads().HasBlob(models[1]));
  };
}

void AddEffectsOnBatchesAndCheckpoints(std::map<std::string, std::function<void()>>& rows) {
  const auto checkpoint_sequence = [](CoreFederation& server, int num_results) {
    const std::string round = server.CreateRound(SumRound(num_results + 1));
    const v1::SyncResponse granted = server.Sync(Ask("w1", num_results));
    for (const v1::Lease& lease : granted.leases()) {
      v1::SyncRequest sync = Ask("w1", 0);
      *sync.add_results() = Result(lease, 1);
      server.Sync(sync);
    }
    return server.store().GetRound(RoundId(round))->checkpoint_sequence;
  };
  rows["checkpoint_spool_bytes"] = [=] {
    constexpr int kResults = 100;
    CoreFederation roomy;
    CHECK(checkpoint_sequence(roomy, kResults) == 0);
    CoreFederation server(With([](Limits& l) { l.checkpoint_spool_bytes = 1; }));
    // As soon as what is spooled is twice the size of the state.
    const int64_t sequence = checkpoint_sequence(server, kResults);
    CHECK(sequence > 1);
    CHECK(sequence <= kResults);
  };
  rows["tasks_per_batch_max"] = [=] {
    CoreFederation server(With([](Limits& l) { l.tasks_per_batch_max = 2; }));
    v1::CreateRoundRequest request;
    request.set_request_id("q");
    *request.mutable_spec() = SumRound(5);
    const auto answer = server.CallInOneBatch<v1::CreateRoundResponse>("RoundService/CreateRound", request);
    CHECK_FALSE(answer->has_value());
    CHECK(server.store().ListRounds({})->empty());
    server.Run();
    REQUIRE(answer->has_value());
    CHECK((**answer)->round().tasks().queued() == 5);
  };
  rows["checkpoint_contributions"] = [=] {
    CoreFederation server(With([](Limits& l) { l.checkpoint_contributions = 2; }));
    CHECK(checkpoint_sequence(server, 3) == 2);
  };
}

// What a limit does where nothing is refused.
std::map<std::string, std::function<void()>> Effects() {
  std::map<std::string, std::function<void()>> rows;
  AddEffectsOnAnswers(rows);
  AddEffectsOnPolls(rows);
  AddEffectsOnDefaultsOfRounds(rows);
  AddEffectsOnWhatIsKept(rows);
  AddEffectsOnBatchesAndCheckpoints(rows);
  return rows;
}

// What holds at the socket, by its test in one of kSocketTests.
const std::map<std::string, std::string> kAtTheSocket = {
    {"receive_bytes_max", "What arrives beyond receive_bytes_max is given up, and is to be tried again"},
    {"calls_per_connection_max",
     "A connection has calls_per_connection_max calls open; more of them wait, and other connections do not"},
    {"handshake_timeout_ms", "Connections that do not get through the handshake in handshake_timeout are hung up on"},
    {"connection_idle_max_ms",
     "A connection without a call is ended after connection_idle_max; one whose poll waits is not"},
    {"call_threads_max", "Files that are hashed keep no other call waiting"},
    {"health_watches_max", "Health watches have a bound, and Check goes on beyond it"},
    {"reflection_streams_max", "Reflection streams have a bound"},
    {"http_connections_max", "Connections have a bound, and one address leaves others some"},
    {"http_header_bytes_max",
     "What two readers could read differently, and what is no request, is refused with a reason"},
    {"http_headers_max", "What two readers could read differently, and what is no request, is refused with a reason"},
    {"request_time_max_ms", "Connections that say nothing, or a byte at a time, are hung up on, and stop nobody else"}};
constexpr const char* kSocketTests[] = {"rpc_server_test.cc", "http/hostile_http_test.cc",
                                        "http/request_parser_test.cc"};

TEST_CASE("Every limit has a test of its own, by its name") {
  std::set<std::string> tested;
  std::string socket_tests;
  for (const char* name : kSocketTests) {
    std::ifstream file(std::string(SHEAF_SOURCE "/tests/server/") + name);
    socket_tests.append(std::istreambuf_iterator<char>(file), {});
  }
  for (const auto& [name, test] : kAtTheSocket) {
    CHECK_THAT(socket_tests, Contains("TEST_CASE(\"" + test + "\")"));
    tested.insert(name);
  }
  for (const auto& [name, row] : Refusals()) tested.insert(name);
  for (const auto& [name, row] : Effects()) tested.insert(name);
  std::set<std::string> names;
  for (const auto& [name, value] : Limits().ByName()) names.insert(name);
  CHECK(tested == names);
}

TEST_CASE("Whoever runs into a limit hears its name, its value and what to do") {
  for (const auto& [name, row] : Refusals()) {
    INFO(name);
    Limits limits;
    row.set(limits);
    const int64_t value = limits.ByName().at(name);
    CHECK(value != Limits().ByName().at(name));
    CoreFederation server(limits);
    const absl::Status refused = row.provoke(server);
    INFO(refused.ToString());
    CHECK(refused.code() == row.code);
    CHECK_THAT(std::string(refused.message()), Contains(name) && Contains(std::to_string(value)) && Contains("; "));
    CHECK(RetryAfter(refused).has_value() == row.has_hint);
  }
}

// What the page says of each limit: name to last column.
std::map<std::string, std::string> LimitsOfThePage() {
  std::ifstream file(SHEAF_SOURCE "/docs/reference/limits.md");
  std::map<std::string, std::string> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| `", 0) != 0) continue;
    const size_t end = line.rfind(" |"), begin = line.rfind("| ", end - 1);
    rows[line.substr(3, line.find('`', 3) - 3)] = line.substr(begin + 2, end - begin - 2);
  }
  return rows;
}

TEST_CASE("The page of the limits says how each refuses, whether to try again, and when") {
  const std::map<std::string, std::string> page = LimitsOfThePage();
  REQUIRE(page.size() == Limits().ByName().size());
  const std::map<absl::Duration, std::string> when = {{absl::Seconds(1), " in a second"},
                                                      {absl::Seconds(2), " in two seconds"},
                                                      {absl::Seconds(30), " in half a minute"}};
  for (const auto& [name, row] : Refusals()) {
    INFO(name);
    Limits limits;
    row.set(limits);
    CoreFederation server(limits);
    const absl::Status refused = row.provoke(server);
    const std::string& text = page.at(name);
    CHECK_THAT(text, Contains(row.code == kRejected ? "REJECTED" : absl::StatusCodeToString(row.code)));
    const std::optional<absl::Duration> pause = RetryAfter(refused);
    CHECK((text.find("try again") != std::string::npos) == pause.has_value());
    if (pause && when.contains(*pause)) CHECK_THAT(text, Contains("try again" + when.at(*pause)));
  }
}

TEST_CASE("The same passes below the limit: what is there by default stands in nobody's way") {
  for (const char* name : {"data_selector_bytes_max", "tasks_per_round_max", "metric_name_bytes_max", "workers_max",
                           "watches_max", "worker_bytes_max"}) {
    INFO(name);
    CoreFederation server;
    const absl::Status status = Refusals().at(name).provoke(server);
    // Of two, the second is parked, as it should be.
    CHECK((status.ok() || absl::IsDeadlineExceeded(status)));
  }
}

TEST_CASE("A task that requires more than a worker may say of itself is refused") {
  Limits limits;
  limits.worker_bytes_max = 100;
  CoreFederation server(limits);
  v1::RoundSpec listed = SumRound(2);
  (*listed.mutable_listed()->mutable_tasks(1)->mutable_requirements())["zone"] = std::string(100, 'z');
  v1::RoundSpec open = SumRound(0);
  open.mutable_open_slots()->set_count(1);
  *open.mutable_open_slots()->mutable_task() = listed.listed().tasks(1);
  for (const v1::RoundSpec& spec : {listed, open}) {
    const absl::Status refused = Create(server, spec);
    CHECK(refused.code() == Code::kResourceExhausted);
    CHECK_THAT(std::string(refused.message()), Contains("requirements") && Contains("worker_bytes_max = 100"));
  }
  (*open.mutable_open_slots()->mutable_task()->mutable_requirements())["zone"] = std::string(90, 'z');
  CHECK(Create(server, open).ok());
}

TEST_CASE("A partial aggregate that is small on its way and large in memory is rejected before it is folded") {
  v1::RoundSpec spec = SumRound(1);
  v1::OutputSpec& output = *spec.mutable_aggregate()->mutable_outputs(0);
  output.set_operator_("keyed_sum");
  output.set_dtype(v1::INT64);
  output.set_dense_shape(0, 1 << 16);
  output.set_key_type(v1::INT64_KEYS);
  RoundAccumulator leaf = RoundAccumulator::Create(spec.aggregate()).value();
  for (int64_t key = 0; key < 64; ++key) {
    v1::Contribution row;
    row.add_outputs()->set_name("x");
    v1::KeyedTable& table = *row.mutable_outputs(0)->mutable_keyed();
    table.mutable_int_keys()->set_dtype(v1::INT64);
    table.mutable_int_keys()->add_shape(1);
    table.mutable_int_keys()->set_data(std::string(reinterpret_cast<const char*>(&key), sizeof key));
    table.mutable_values()->set_dtype(v1::INT64);
    table.mutable_values()->add_shape(1);
    table.mutable_values()->add_shape(1 << 16);
    table.mutable_values()->set_data(std::string(8 << 16, '\0'));
    leaf.Accumulate(leaf.Validate(std::move(row)).value());
  }
  const v1::Contribution partial = leaf.PartialAggregate();
  CHECK(partial.ByteSizeLong() < 10'000);
  for (const int64_t bytes_max : {int64_t{16} << 20, Limits().accumulator_bytes_max}) {
    Limits limits;
    limits.accumulator_bytes_max = bytes_max;
    CoreFederation server(limits);
    const absl::Status status = HandIn(server, spec, [&](v1::Contribution& contribution) { contribution = partial; });
    INFO(status.ToString());
    CHECK(status.ok() == (bytes_max == Limits().accumulator_bytes_max));
    if (!status.ok()) CHECK_THAT(std::string(status.message()), Contains("accumulator_bytes_max = 16777216"));
  }
}

TEST_CASE("A limit that refuses nothing does what it says") {
  for (const auto& [name, check] : Effects()) {
    INFO(name);
    check();
  }
}

TEST_CASE("How many calls were refused because there was too much to do is to be seen where it is not refused") {
  const auto num_refused = [](CoreFederation& server) {
    return server.Call<v1::GetServerInfoResponse>("InspectionService/GetServerInfo", v1::GetServerInfoRequest())
        ->num_refused_calls();
  };
  for (const char* name : {"queued_calls_max", "queued_inspections_max", "open_request_bytes_max"}) {
    INFO(name);
    const Refusal row = Refusals().at(name);
    Limits limits;
    row.set(limits);
    CoreFederation server(limits);
    CHECK(num_refused(server) == 0);
    CHECK_FALSE(row.provoke(server).ok());
    CHECK(num_refused(server) == 1);
  }
}

TEST_CASE("The requests of one identity leave room for those of others, and of those again") {
  Limits limits;
  limits.open_request_bytes_max = 100'000;
  CoreFederation server(limits);
  const auto enter = [&](const std::string& name, int64_t bytes) {
    return server.Enter("sheaf.v1.WorkService/Sync", Identity{.name = name}, bytes, server.clock().Now());
  };
  CHECK(enter("greedy", 90'000).ok());
  const absl::Status refused = enter("greedy", 1);
  CHECK(absl::IsResourceExhausted(refused));
  CHECK_THAT(std::string(refused.message()),
             Contains("open_request_bytes_max = 100000") && Contains("90000 of them of greedy"));
  CHECK(enter("modest", 9'000).ok());
  CHECK_FALSE(enter("modest", 1).ok());
  CHECK(enter("third", 900).ok());
  server.parts().admission.Leave(Identity{.name = "greedy"}, 90'000);
  CHECK(enter("modest", 80'000).ok());
}

TEST_CASE("Parts of a message are counted on the wire, before they are parsed") {
  const auto check = [](const std::string& bytes, int64_t parts_max) {
    google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()), 7);
    Limits limits;
    limits.request_parts_max = parts_max;
    return CheckParts(*v1::SyncRequest::descriptor(), stream, &Limits::request_parts_max, limits);
  };
  v1::SyncRequest request = Ask("w1", 1);
  for (int i = 0; i < 10; ++i) request.add_results()->mutable_timings()->mutable_compute()->set_seconds(1);
  // The computation; and per result itself, its timings and the duration in them.
  CHECK(check(request.SerializeAsString(), 31).ok());
  CHECK(check(request.SerializeAsString(), 30).code() == Code::kResourceExhausted);
  // Fields that nobody knows are kept by the parser, too: 1000 of the number 2000, varints.
  std::string unknown;
  for (int i = 0; i < 1000; ++i) unknown += std::string("\x80\x7d\x01", 3);
  CHECK(check(unknown, 1000).ok());
  CHECK(check(unknown, 999).code() == Code::kResourceExhausted);
  // So are known ones of another type: 1000 empty strings where `want` is a number.
  std::string mistyped;
  for (int i = 0; i < 1000; ++i) mistyped += std::string("\x52\x00", 2);
  CHECK(check(mistyped, 1000).ok());
  CHECK(check(mistyped, 999).code() == Code::kResourceExhausted);
  // A group may hold any number: none is let in.
  CHECK(check(std::string("\x13\x08\x01\x14", 4), 1000).code() == Code::kResourceExhausted);
  // Nonsense is the parser's to refuse.
  CHECK(check("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 1).ok());
  CHECK(check(std::string("\x42\x7f", 2), 1).ok());
}

}  // namespace
}  // namespace sheaf
