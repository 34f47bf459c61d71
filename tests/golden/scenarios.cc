#include "tests/golden/scenarios.h"

#include "base/retry_hint.h"
#include "tests/golden/stage.h"

namespace sheaf::golden {
namespace {

constexpr WorkerStart kOneTask = {.concurrency = 1, .seed = 11};

Transcript Steady(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Seconds(5));
  stage.CreateRound({.tasks = {R"({"value": 1})", R"({"value": 2})", R"({"value": 4, "seconds": 3})"}});
  stage.Play(absl::Seconds(60));
  stage.CreateRound({.tasks = {R"({"value": 8})"}});
  stage.Play(absl::Seconds(5));
  stage.Drain("edge-1");
  stage.Play(absl::Seconds(5));
  return stage.Finish();
}

Transcript Renewals(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  stage.CreateRound({.tasks = {R"({"seconds": 45})"}});
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Seconds(70));
  // It goes silent after five seconds; its lease runs out, and the next attempt does no better.
  stage.CreateRound({.tasks = {R"({"seconds": 70, "silent_from": 5})"}});
  stage.Play(absl::Seconds(45));
  return stage.Finish();
}

Transcript TwoAtATime(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  stage.CreateRound({.tasks = {R"({"seconds": 3})", R"({"seconds": 7})", R"({"seconds": 2})", R"({"seconds": 2})"}});
  stage.Start("edge-1", {.concurrency = 2, .seed = 12});
  stage.Play(absl::Seconds(30));
  return stage.Finish();
}

Transcript LostAnswers(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  stage.CreateRound({.tasks = {R"({"value": 1})", R"({"value": 2})", R"({"value": 4})", R"({"value": 8})"}});
  // The answer that grants the first lease; later the one that accepts a result and brings the next lease; then a
  // request with a result.
  stage.Lose("edge-1", kSync.name, 1, Delivery::kAnswerLost);
  stage.Lose("edge-1", kSync.name, 3, Delivery::kAnswerLost);
  stage.Lose("edge-1", kSync.name, 5, Delivery::kRequestLost);
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Seconds(40));
  return stage.Finish();
}

Transcript BrokenWait(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  stage.Lose("edge-1", kSync.name, 1, Delivery::kConnectionLost, absl::Seconds(4));
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Seconds(10));
  stage.CreateRound({.tasks = {"{}"}});
  stage.Play(absl::Seconds(20));
  return stage.Finish();
}

Transcript CutOff(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  stage.CreateRound({.tasks = {R"({"seconds": 20})"}});
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Seconds(5));
  stage.CutOff("edge-1");
  stage.Play(absl::Seconds(27));
  // The lease is over for the server by now, and another worker has the task.
  stage.Start("edge-2", {.concurrency = 1, .seed = 13});
  stage.Play(absl::Seconds(2));
  stage.Reconnect("edge-1");
  stage.Play(absl::Seconds(40));
  return stage.Finish();
}

Transcript Uploads(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about, {{"inline_bytes_max", 512}, {"chunk_bytes_max", 1024}});
  stage.CreateRound({.tasks = {R"({"value": 1})", R"({"value": 2})", R"({"value": 4})"}, .elements = 600});
  // Of the second upload a chunk's answer gets lost, and another chunk; of the third the beginning's answer, and the
  // end's.
  stage.Lose("edge-1", kWriteChunk.name, 5, Delivery::kAnswerLost);
  stage.Lose("edge-1", kWriteChunk.name, 6, Delivery::kRequestLost);
  stage.Lose("edge-1", kStartUpload.name, 3, Delivery::kAnswerLost);
  stage.Lose("edge-1", kFinishUpload.name, 3, Delivery::kAnswerLost);
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Seconds(60));
  return stage.Finish();
}

Transcript UploadsNotWanted(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about, {{"inline_bytes_max", 512}, {"chunk_bytes_max", 1024}});
  // One of two suffices.
  stage.CreateRound({.tasks = {R"({"seconds": 2})", R"({"seconds": 6})"}, .elements = 600, .goal = 1});
  stage.Start("edge-1", kOneTask);
  stage.Start("edge-2", {.concurrency = 1, .seed = 13});
  stage.Play(absl::Seconds(20));
  // The task is taken away while it is computed.
  const std::string round = stage.CreateRound({.tasks = {R"({"seconds": 4})"}, .elements = 600});
  stage.Play(absl::Seconds(2));
  v1::RequeueTaskRequest requeue;
  requeue.set_request_id("requeue-1");
  requeue.set_task(round + "/0");
  stage.Ask("operator", kRequeueTask, requeue);
  stage.Play(absl::Seconds(30));
  return stage.Finish();
}

Transcript Cancelled(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  const auto cancel = [&stage](const std::string& round) {
    v1::CancelRoundRequest request;
    request.set_request_id("cancel-" + round);
    request.set_round(round);
    request.set_reason("not wanted any more");
    stage.Ask("program", kCancelRound, request);
  };
  const std::string renewed = stage.CreateRound({.tasks = {R"({"seconds": 40})"}});
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Seconds(4));
  cancel(renewed);
  stage.Play(absl::Seconds(20));
  // This one ends before its worker would renew.
  const std::string short_lived = stage.CreateRound({.tasks = {R"({"seconds": 4})"}});
  stage.Play(absl::Seconds(2));
  cancel(short_lived);
  stage.Play(absl::Seconds(20));
  return stage.Finish();
}

Transcript TakenAway(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  const std::string round = stage.CreateRound({.tasks = {R"({"seconds": 25})"}});
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Seconds(4));
  v1::RequeueTaskRequest requeue;
  requeue.set_request_id("requeue-1");
  requeue.set_task(round + "/0");
  stage.Ask("operator", kRequeueTask, requeue);
  stage.Start("edge-2", {.concurrency = 1, .seed = 13});
  stage.Play(absl::Seconds(30));
  return stage.Finish();
}

Transcript NotNeeded(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  stage.CreateRound({.tasks = {R"({"seconds": 2})", R"({"seconds": 5})", R"({"seconds": 25})"}, .goal = 1});
  stage.Start("edge-1", kOneTask);
  stage.Start("edge-2", {.concurrency = 1, .seed = 13});
  stage.Start("edge-3", {.concurrency = 1, .seed = 14});
  stage.Play(absl::Seconds(40));
  return stage.Finish();
}

Transcript Failures(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  stage.CreateRound({.tasks = {R"({"fail": "out of memory"})"}});
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Seconds(20));
  stage.CreateRound({.tasks = {R"({"fail": "there is no such data", "permanent": true})"}});
  stage.Play(absl::Seconds(20));
  stage.CreateRound({.tasks = {R"({"too_many": 1})"}});
  stage.Play(absl::Seconds(20));
  return stage.Finish();
}

Transcript Broadcasts(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  const std::string digest = stage.UploadBroadcast(100);
  stage.CreateRound({.tasks = {R"({"rows": [3, 97, 3]})", R"({"broadcast": true})", R"({"broadcast": true})"},
                     .broadcast_digest = digest});
  stage.Lose("edge-1", kSelectRows.name, 1, Delivery::kRequestLost);
  stage.Lose("edge-1", kReadBlob.name, 1, Delivery::kAnswerLost);
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Seconds(40));
  return stage.Finish();
}

Transcript DrainedByServer(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  stage.CreateRound({.tasks = {R"({"seconds": 12})", "{}"}});
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Seconds(2));
  v1::DrainWorkerRequest drain;
  drain.set_request_id("drain-1");
  drain.set_worker("edge-1");
  stage.Ask("operator", kDrainWorker, drain);
  stage.Play(absl::Seconds(30));
  return stage.Finish();
}

Transcript Stopped(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  stage.CreateRound({.tasks = {R"({"seconds": 50})"}});
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Seconds(2));
  // It does not end within the grace time of 20 s: it is given back.
  stage.Drain("edge-1");
  stage.Play(absl::Seconds(40));
  return stage.Finish();
}

Transcript ServerKilled(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  stage.CreateRound({.tasks = {R"({"seconds": 8})", R"({"seconds": 2})"}});
  stage.Start("edge-1", kOneTask);
  stage.Start("edge-2", {.concurrency = 1, .seed = 13});
  // While one computes and the other is parked; and once more when all are parked.
  stage.Play(absl::Seconds(5));
  stage.KillServer();
  stage.Play(absl::Seconds(15));
  stage.KillServer();
  stage.Play(absl::Seconds(20));
  return stage.Finish();
}

Transcript TurnedAway(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  stage.CreateRound({.tasks = {R"({"seconds": 40})", R"({"seconds": 2})", R"({"seconds": 3})"}});
  const auto overloaded = [](int seconds) {
    return WithRetryAfter(absl::ResourceExhaustedError("too much at once"), absl::Seconds(seconds));
  };
  // At first with nothing to lose; then with a result, until only renewals are sent; then its token is none for a
  // moment, and the disk is full.
  stage.TurnAway("edge-1", kSync.name, 1, overloaded(3));
  stage.TurnAway("edge-1", kSync.name, 3, overloaded(2));
  stage.TurnAway("edge-1", kSync.name, 4, overloaded(2));
  stage.TurnAway("edge-1", kSync.name, 5, overloaded(4));
  stage.TurnAway("edge-1", kSync.name, 8, absl::UnauthenticatedError("the token is revoked"));
  stage.TurnAway("edge-1", kSync.name, 9, absl::ResourceExhaustedError("the disk is full"));
  stage.Start("edge-1", {.concurrency = 2, .seed = 15});
  stage.Play(absl::Seconds(80));
  return stage.Finish();
}

Transcript Outage(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  stage.CreateRound({.tasks = {R"({"seconds": 4})", R"({"seconds": 60})"}});
  // The first result finds nobody, eight times; each pause is longer than the one before, as chance has it.
  for (int nth = 2; nth < 10; ++nth) stage.Lose("edge-1", kSync.name, nth, Delivery::kRequestLost);
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Seconds(100));
  return stage.Finish();
}

Transcript OutOfService(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  const auto drain = [&stage](bool is_back) {
    v1::DrainWorkerRequest request;
    request.set_request_id(is_back ? "undrain-1" : "drain-1");
    request.set_worker("edge-1");
    request.set_undo(is_back);
    stage.Ask("operator", kDrainWorker, request);
  };
  stage.CreateRound({.tasks = {R"({"seconds": 12})", "{}"}});
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Seconds(2));
  drain(false);
  stage.Play(absl::Seconds(60));
  drain(true);
  stage.Play(absl::Seconds(10));
  stage.Drain("edge-1");
  stage.Play(absl::Seconds(5));
  return stage.Finish();
}

Transcript LargeLost(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about, {{"inline_bytes_max", 512}, {"chunk_bytes_max", 1024}});
  stage.CreateRound({.tasks = {R"({"value": 1})", R"({"value": 2})"}, .elements = 1200});
  // A chunk is refused for a moment; later the server is killed in the middle of an upload, while it has a chunk.
  stage.TurnAway("edge-1", kWriteChunk.name, 2,
                 WithRetryAfter(absl::ResourceExhaustedError("too much at once"), absl::Seconds(2)));
  stage.Start("edge-1", kOneTask);
  stage.Play(absl::Milliseconds(4885));
  stage.KillServer();
  stage.Play(absl::Seconds(60));
  return stage.Finish();
}

// Whoever prepares one task beside the one that it runs.
constexpr WorkerStart kOneAhead = {.concurrency = 1, .seed = 16, .prepare_ahead = 1};

Transcript Announced(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  const std::string digest = stage.UploadBroadcast(3);
  stage.CreateRound({.tasks = {R"({"seconds": 4})"}});
  stage.Lose("edge-1", kSync.name, 14, Delivery::kAnswerLost);
  stage.Start("edge-1", kOneAhead);
  stage.Play(absl::Seconds(1));
  // Prepared while the other runs, and opened when that has ended.
  const std::string first = stage.CreateRound({.tasks = {R"({"value": 2, "broadcast": true})"}, .announced = true});
  stage.Play(absl::Seconds(15));
  stage.OpenRound(first, digest);
  stage.Play(absl::Seconds(10));
  // Prepared while nothing runs, for longer than a lease; the answer that says OPENED gets lost.
  const std::string second = stage.CreateRound({.tasks = {R"({"value": 4})", R"({"value": 8})"}, .announced = true});
  stage.Play(absl::Seconds(45));
  stage.OpenRound(second, "");
  stage.Play(absl::Seconds(40));
  return stage.Finish();
}

Transcript AnnouncedInVain(const Scenario& scenario) {
  Stage stage(scenario.name, scenario.about);
  stage.Start("edge-1", kOneAhead);
  const std::string cancelled = stage.CreateRound({.tasks = {"{}"}, .announced = true});
  stage.Play(absl::Seconds(5));
  v1::CancelRoundRequest cancel;
  cancel.set_request_id("cancel-1");
  cancel.set_round(cancelled);
  stage.Ask("program", kCancelRound, cancel);
  stage.Play(absl::Seconds(5));
  // It is told to stop while it holds another: who waits takes that.
  const std::string round = stage.CreateRound({.tasks = {R"({"seconds": 2})"}, .announced = true});
  stage.Play(absl::Seconds(5));
  stage.Drain("edge-1");
  stage.Play(absl::Seconds(5));
  stage.Start("edge-2", {.concurrency = 1, .seed = 17});
  stage.Play(absl::Seconds(5));
  // One that prepares nothing has the task once the round is open.
  stage.OpenRound(round, "");
  stage.Play(absl::Seconds(10));
  return stage.Finish();
}

constexpr Scenario kNextScenarios[] = {
    {"announced", "Tasks of announced rounds are prepared, renewed while they wait, and run when OPENED is heard.",
     Announced},
    {"announced_in_vain",
     "An announced round is cancelled; a worker that stops gives back what it prepared; one that prepares nothing "
     "waits.",
     AnnouncedInVain},
    {"turned_away",
     "Calls are refused for a moment, with and without a hint when to come back; what is held is renewed.", TurnedAway},
    {"outage", "The server cannot be reached for a while: pauses between calls grow; a result is handed in late.",
     Outage},
    {"out_of_service", "An operator drains a worker and takes it back; then it is told to stop.", OutOfService},
    {"uploads_resumed", "An upload goes on after a refusal, and after a restart of the server.", LargeLost},
};

constexpr Scenario kScenarios[] = {
    {"steady", "Tasks one after the other, small results inline; a parked call; the worker is told to stop.", Steady},
    {"renewals", "A long task is renewed as long as it makes progress; one that goes silent loses its lease.",
     Renewals},
    {"two_at_a_time", "A worker that holds two tasks at a time.", TwoAtATime},
    {"lost_answers",
     "Answers and requests of Sync get lost: the same poll_id gets the same lease, a result that is "
     "handed in again is a DUPLICATE.",
     LostAnswers},
    {"broken_wait", "The connection breaks while a call is parked.", BrokenWait},
    {"cut_off", "A worker is cut off for longer than its lease; another one gets the task.", CutOff},
    {"uploads", "Results too large to go inline are uploaded in chunks; calls of the upload get lost.", Uploads},
    {"uploads_not_wanted", "The server does not want an upload: the round has enough, or the lease is another's.",
     UploadsNotWanted},
    {"cancelled", "Rounds are cancelled while their tasks are computed: CANCELLED, and LATE.", Cancelled},
    {"taken_away", "An operator puts a task back that is being computed: LOST; another worker gets it.", TakenAway},
    {"not_needed", "A round has what it needs while others still compute.", NotNeeded},
    {"failures", "Attempts fail, for now and for good; a result is REJECTED.", Failures},
    {"broadcasts", "Tasks that fetch rows of a broadcast, or the whole.", Broadcasts},
    {"drained_by_server", "An operator drains a worker: it ends what it holds and takes nothing new.", DrainedByServer},
    {"stopped", "A worker that is told to stop gives back what it cannot end.", Stopped},
    {"server_killed", "The server is killed and comes back.", ServerKilled},
};

}  // namespace

std::span<const Scenario> Scenarios() { return kScenarios; }
std::span<const Scenario> NextScenarios() { return kNextScenarios; }

}  // namespace sheaf::golden
