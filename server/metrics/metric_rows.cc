#include "server/metrics/metric_rows.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/functional/function_ref.h"
#include "base/check.h"
#include "base/version.h"
#include "sheaf/v1/work_service.pb.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

// --- Labels ---------------------------------------------------------------------------------------------------------

const MetricLabel kPopulation = {
    "population",
    "`default`, and the first 31 others that the process hears of, by name; `other`: all others together"};
const MetricLabel kMethod = {"method", "such as `WorkService/Sync`: those of [the API](rpc.md)"};

using Use = absl::FunctionRef<void(std::string_view population, const PopulationFigures& figures)>;

void ForEachPopulation(const MetricSources& sources, Use use) {
  const std::vector<std::string> names = sources.core.slots.Names();
  for (size_t slot = 0; slot < names.size(); ++slot) use(names[slot], sources.core.populations[slot]);
  const PopulationFigures& others = sources.core.populations[PopulationSlots::kOthers];
  const bool has_rounds =
      std::any_of(others.rounds.begin(), others.rounds.end(), [](const Gauge& rounds) { return rounds.value() > 0; });
  if (has_rounds || others.rounds_created.value() > 0 || others.workers.total() > 0) {
    use(PopulationSlots::kOther, others);
  }
}

// "WorkService/Sync"
std::string_view ShortName(std::string_view method) {
  constexpr std::string_view kPackage = "sheaf.v1.";
  return method.starts_with(kPackage) ? method.substr(kPackage.size()) : method;
}

void ForEachMethod(const MetricSources& sources,
                   absl::FunctionRef<void(std::string_view method, const MethodFigures& figures)> use) {
  const CallFigures& figures = sources.pipeline.figures();
  for (const MethodRow& method : figures.methods().rows()) use(ShortName(method.name), figures.Of(method));
}

constexpr TaskState kTaskStates[] = {TaskState::kQueued, TaskState::kLeased,    TaskState::kSucceeded,
                                     TaskState::kFailed, TaskState::kCancelled, TaskState::kBuried};
constexpr RoundState kLiveStates[] = {RoundState::kAnnounced, RoundState::kCollecting, RoundState::kSealing};
constexpr RoundState kFinalStates[] = {RoundState::kSucceeded, RoundState::kFailed, RoundState::kCancelled};
constexpr AttemptOutcome kOutcomes[] = {AttemptOutcome::kSucceeded, AttemptOutcome::kFailed, AttemptOutcome::kLost,
                                        AttemptOutcome::kReleased, AttemptOutcome::kCancelled};
constexpr std::pair<std::string_view, Lane> kLanes[] = {{"work", Lane::kWork}, {"inspection", Lane::kInspection}};
constexpr std::pair<std::string_view, AnswerKind> kAnswers[] = {
    {"control", AnswerKind::kControl}, {"list", AnswerKind::kList}, {"read", AnswerKind::kRead}};

// A worker that waits calls again within poll_wait_max, and a little later.
int64_t LiveMinutes(const Limits& limits) { return absl::ToInt64Minutes(limits.poll_wait_max) + 1; }

double SinceNanos(int64_t nanos, absl::Time now) {
  return std::max(0.0, absl::ToDoubleSeconds(now - absl::FromUnixNanos(nanos)));
}

using Sources = const MetricSources&;

// --- Where rows look ------------------------------------------------------------------------------------------------

double ValueOf(const Counter& counter) { return static_cast<double>(counter.value()); }
double ValueOf(const Gauge& gauge) { return static_cast<double>(gauge.value()); }
const Histogram& ValueOf(const Histogram& histogram) { return histogram; }

template <auto kFigure>
void OfCore(Sources sources, const Scrape& /*scrape*/, Samples& samples) {
  samples.Add({}, ValueOf(sources.core.*kFigure));
}

template <auto kFigure>
void OfBatches(Sources sources, const Scrape& /*scrape*/, Samples& samples) {
  samples.Add({}, ValueOf(sources.batches.*kFigure));
}

template <auto kFigure>
void OfMethods(Sources sources, const Scrape& /*scrape*/, Samples& samples) {
  ForEachMethod(sources, [&](std::string_view method, const MethodFigures& figures) {
    samples.Add({method}, ValueOf(figures.*kFigure));
  });
}

template <auto kFigure>
void OfPopulations(Sources sources, const Scrape& /*scrape*/, Samples& samples) {
  ForEachPopulation(sources, [&](std::string_view population, const PopulationFigures& figures) {
    samples.Add({population}, ValueOf(figures.*kFigure));
  });
}

// One for each of `kStates`.
template <auto kFigures, const auto& kStates>
void OfPopulationsBy(Sources sources, const Scrape& /*scrape*/, Samples& samples) {
  ForEachPopulation(sources, [&](std::string_view population, const PopulationFigures& figures) {
    for (const auto state : kStates) {
      samples.Add({population, Name(state)}, ValueOf((figures.*kFigures)[static_cast<size_t>(state)]));
    }
  });
}

// --- The rows -------------------------------------------------------------------------------------------------------

std::vector<MetricRow> RowsOfCalls() {
  return {
      {.name = "sheaf_calls_total",
       .unit = "calls",
       .help = "Calls that were answered, by method and status code.",
       .labels = {kMethod, {"code", "gRPC's codes, such as `OK` or `RESOURCE_EXHAUSTED`"}},
       .collect =
           [](Sources sources, const Scrape&, Samples& samples) {
             ForEachMethod(sources, [&](std::string_view method, const MethodFigures& figures) {
               for (size_t code = 0; code < figures.by_code.size(); ++code) {
                 const int64_t count = figures.by_code[code].value();
                 if (count == 0 && code > 0) continue;
                 samples.Add({method, absl::StatusCodeToString(static_cast<absl::StatusCode>(code))},
                             static_cast<double>(count));
               }
             });
           }},
      {.name = "sheaf_call_duration_seconds",
       .type = MetricType::kHistogram,
       .unit = "seconds",
       .help = "From when a request was there, whole, until its answer was on its way. A Sync or GetRound that waits "
               "for something counts its wait.",
       .labels = {kMethod},
       .bounds = kDurationBounds,
       .collect = OfMethods<&MethodFigures::duration_seconds>},
      {.name = "sheaf_call_request_bytes_total",
       .unit = "bytes",
       .help = "Requests that came, as on the wire, without headers.",
       .labels = {kMethod},
       .collect = OfMethods<&MethodFigures::request_bytes>},
      {.name = "sheaf_call_answer_bytes_total",
       .unit = "bytes",
       .help = "Answers that were made, as on the wire, without headers.",
       .labels = {kMethod},
       .collect = OfMethods<&MethodFigures::answer_bytes>},
      {.name = "sheaf_calls_refused_total",
       .unit = "calls",
       .help = "Calls that a limit refused.",
       .labels = {{"limit", "the names of [the limits](limits.md), without `_ms`"}},
       .collect =
           [](Sources sources, const Scrape&, Samples& samples) {
             const std::vector<Counter>& refused = sources.pipeline.figures().refused_by_limit();
             for (size_t i = 0; i < refused.size(); ++i) {
               const LimitRow& limit = LimitRows()[i];
               if (limit.answer.code != absl::StatusCode::kResourceExhausted && refused[i].value() == 0) continue;
               samples.Add({limit.name}, static_cast<double>(refused[i].value()));
             }
           }},
      {.name = "sheaf_open_calls",
       .type = MetricType::kGauge,
       .unit = "calls",
       .help = "Calls that are not answered yet, those that wait included.",
       .collect = [](Sources sources, const Scrape&,
                     Samples& samples) { samples.Add({}, static_cast<double>(sources.pipeline.num_open())); }},
      {.name = "sheaf_queued_calls",
       .type = MetricType::kGauge,
       .unit = "calls",
       .help = "Calls that wait for the core's next batch (queued_calls_max, queued_inspections_max).",
       .labels = {{"lane", "`work`, `inspection`"}},
       .collect =
           [](Sources sources, const Scrape&, Samples& samples) {
             for (const auto& [name, lane] : kLanes) {
               samples.Add({name}, static_cast<double>(sources.admission.num_queued(lane)));
             }
           }},
      {.name = "sheaf_open_request_bytes",
       .type = MetricType::kGauge,
       .unit = "bytes",
       .help = "Memory of requests that are being answered (open_request_bytes_max).",
       .collect = [](Sources sources, const Scrape&,
                     Samples& samples) { samples.Add({}, static_cast<double>(sources.admission.bytes())); }},
      {.name = "sheaf_open_answer_bytes",
       .type = MetricType::kGauge,
       .unit = "bytes",
       .help = "Memory of answers that are being made, or that clients have not taken yet (open_answer_bytes_max).",
       .labels = {{"kind", "`control`: of workers and all that is small; `list`; `read`: of files"}},
       .collect =
           [](Sources sources, const Scrape&, Samples& samples) {
             for (const auto& [name, kind] : kAnswers) {
               samples.Add({name}, static_cast<double>(sources.pipeline.answers().bytes(kind)));
             }
           }},
      {.name = "sheaf_waiting_answers",
       .type = MetricType::kGauge,
       .unit = "calls",
       .help = "Lists and reads that wait for room for their answers (waiting_answers_max).",
       .collect =
           [](Sources sources, const Scrape&, Samples& samples) {
             samples.Add({}, static_cast<double>(sources.pipeline.answers().num_waiting()));
           }},
      {.name = "sheaf_answers_cut_total",
       .unit = "calls",
       .help = "Answers that were cut off because their clients did not take them (answer_time_max).",
       .collect = [](Sources sources, const Scrape&,
                     Samples& samples) { samples.Add({}, static_cast<double>(sources.pipeline.answers().num_cut())); }},
  };
}

// Of each store that is served.
std::vector<MetricRow> RowsOfStores() {
  return {
      {.name = "sheaf_batch_events",
       .type = MetricType::kHistogram,
       .unit = "events",
       .help = "Calls and other events that shared one batch, hence one commit.",
       .bounds = kCountBounds,
       .collect = OfBatches<&BatchFigures::events>},
      {.name = "sheaf_event_queue_duration_seconds",
       .type = MetricType::kHistogram,
       .unit = "seconds",
       .help = "How long calls and other events waited for their batch to begin.",
       .bounds = kDurationBounds,
       .collect = OfBatches<&BatchFigures::queue_seconds>},
      {.name = "sheaf_batch_work_duration_seconds",
       .type = MetricType::kHistogram,
       .unit = "seconds",
       .help = "How long a batch worked before its commit.",
       .bounds = kDurationBounds,
       .collect = OfBatches<&BatchFigures::work_seconds>},
      {.name = "sheaf_spool_flush_duration_seconds",
       .type = MetricType::kHistogram,
       .unit = "seconds",
       .help = "How long the commit of a batch flushed contributions to disk.",
       .bounds = kDurationBounds,
       .collect = OfBatches<&BatchFigures::flush_seconds>},
      {.name = "sheaf_store_commit_duration_seconds",
       .type = MetricType::kHistogram,
       .unit = "seconds",
       .help = "How long the commit of a batch wrote and flushed the task store.",
       .bounds = kDurationBounds,
       .collect = OfBatches<&BatchFigures::commit_seconds>},
      {.name = "sheaf_batches_failed_total",
       .unit = "batches",
       .help = "Batches of which nothing has happened, most likely because the disk is full. What the other counters "
               "counted of them stays counted.",
       .collect = OfBatches<&BatchFigures::failed>},
      {.name = "sheaf_batch_running_seconds",
       .type = MetricType::kGauge,
       .unit = "seconds",
       .help = "How long the batch has been running that runs now; 0 if none does. Seconds mean that the disk hangs.",
       .collect =
           [](Sources sources, const Scrape& scrape, Samples& samples) {
             const int64_t since = sources.batches.running_since.value();
             samples.Add({}, since == 0 ? 0 : SinceNanos(since, scrape.now));
           }},
      {.name = "sheaf_core_cpu_seconds_total",
       .unit = "seconds",
       .help = "Processor time of the core's thread. Its rate is how busy the core is: 1 is all there is.",
       .labels = {{"work", "methods, and what a batch does besides, such as `the commit`"}},
       .collect =
           [](Sources sources, const Scrape&, Samples& samples) {
             sources.batches.cpu.ForEach([&](std::string_view what, absl::Duration cost) {
               samples.Add({ShortName(what)}, absl::ToDoubleSeconds(cost));
             });
           }},
      // The queue.
      {.name = "sheaf_tasks",
       .type = MetricType::kGauge,
       .unit = "tasks",
       .help = "Tasks of rounds that are COLLECTING.",
       .labels = {kPopulation, {"state", "`QUEUED`, `LEASED`, `SUCCEEDED`, `FAILED`, `CANCELLED`, `BURIED`"}},
       .collect = OfPopulationsBy<&PopulationFigures::tasks, kTaskStates>},
      {.name = "sheaf_oldest_ready_task_age_seconds",
       .type = MetricType::kGauge,
       .unit = "seconds",
       .help = "How long the task has waited that has waited longest of those that could be leased; 0 if none waits. "
               "After a restart, until a worker asks for work of a round, its tasks count as old as the round.",
       .labels = {kPopulation},
       .collect =
           [](Sources sources, const Scrape& scrape, Samples& samples) {
             ForEachPopulation(sources, [&](std::string_view population, const PopulationFigures& figures) {
               const int64_t since = figures.oldest_available.value();
               samples.Add({population}, since == PopulationFigures::kNever ? 0 : SinceNanos(since, scrape.now));
             });
           }},
      {.name = "sheaf_tasks_created_total",
       .unit = "tasks",
       .help = "Tasks of rounds that were created.",
       .labels = {kPopulation},
       .collect = OfPopulations<&PopulationFigures::tasks_created>},
      {.name = "sheaf_task_wait_duration_seconds",
       .type = MetricType::kHistogram,
       .unit = "seconds",
       .help = "From when a task could be leased until it was, for each lease.",
       .bounds = kWaitBounds,
       .collect = OfCore<&CoreFigures::task_wait_seconds>},
      {.name = "sheaf_task_run_duration_seconds",
       .type = MetricType::kHistogram,
       .unit = "seconds",
       .help = "From the lease of a task until its contribution was accepted.",
       .bounds = kWaitBounds,
       .collect = OfCore<&CoreFigures::task_run_seconds>},
      // Leases and polls.
      {.name = "sheaf_leases_granted_total",
       .unit = "leases",
       .help = "Leases that were granted.",
       .labels = {kPopulation},
       .collect = OfPopulations<&PopulationFigures::leases_granted>},
      {.name = "sheaf_leases_ended_total",
       .unit = "leases",
       .help = "How leases ended. LOST: the worker made no progress, took too long, or its upload is gone. CANCELLED: "
               "the round stopped collecting, or an operator put the task back.",
       .labels = {kPopulation, {"outcome", "`SUCCEEDED`, `FAILED`, `LOST`, `RELEASED`, `CANCELLED`"}},
       .collect = OfPopulationsBy<&PopulationFigures::leases_ended, kOutcomes>},
      {.name = "sheaf_leases_renewed_total",
       .unit = "leases",
       .help = "Leases that workers named as held, and that are.",
       .collect = OfCore<&CoreFigures::leases_renewed>},
      {.name = "sheaf_leases_resent_total",
       .unit = "leases",
       .help = "Leases that were sent again because the answer that brought them was lost.",
       .collect = OfCore<&CoreFigures::leases_resent>},
      {.name = "sheaf_verdicts_total",
       .unit = "results",
       .help =
           "Verdicts on results that workers handed in; failures that were reported and leases that were given back "
           "are ACCEPTED, too.",
       .labels = {kPopulation,
                  {"verdict",
                   "`ACCEPTED`, `DUPLICATE`, `LATE`, `NOT_NEEDED`, `LEASE_LOST`, `REJECTED`, `UNKNOWN_TASK`"}},
       .collect =
           [](Sources sources, const Scrape&, Samples& samples) {
             ForEachPopulation(sources, [&](std::string_view population, const PopulationFigures& figures) {
               for (size_t verdict = 1; verdict < figures.verdicts.size(); ++verdict) {
                 samples.Add({population, v1::ResultVerdict::Verdict_Name(static_cast<int>(verdict))},
                             static_cast<double>(figures.verdicts[verdict].value()));
               }
             });
           }},
      {.name = "sheaf_parked_polls",
       .type = MetricType::kGauge,
       .unit = "calls",
       .help = "Workers' calls that wait for work (parked_polls_max).",
       .labels = {kPopulation},
       .collect = OfPopulations<&PopulationFigures::parked_polls>},
      {.name = "sheaf_poll_wait_duration_seconds",
       .type = MetricType::kHistogram,
       .unit = "seconds",
       .help = "How long calls waited for work that were answered.",
       .bounds = kWaitBounds,
       .collect = OfCore<&CoreFigures::poll_wait_seconds>},
      {.name = "sheaf_polls_ended_total",
       .unit = "calls",
       .help = "What became of calls that waited for work.",
       .labels = {{"result",
                   "`leases`: they got some; `nothing`: their time was over, or there was something to say; "
                   "`gone`: the caller went away"}},
       .collect =
           [](Sources sources, const Scrape&, Samples& samples) {
             samples.Add({"leases"}, static_cast<double>(sources.core.polls_with_leases.value()));
             samples.Add({"nothing"}, static_cast<double>(sources.core.polls_without_leases.value()));
             samples.Add({"gone"}, static_cast<double>(sources.core.polls_abandoned.value()));
           }},
      {.name = "sheaf_waiting_watches",
       .type = MetricType::kGauge,
       .unit = "calls",
       .help = "GetRound calls that wait for their round to change (watches_max).",
       .collect = OfCore<&CoreFigures::waiting_watches>},
      // Rounds.
      {.name = "sheaf_rounds",
       .type = MetricType::kGauge,
       .unit = "rounds",
       .help = "Rounds that have not ended (live_rounds_max).",
       .labels = {kPopulation, {"state", "`ANNOUNCED`, `COLLECTING`, `SEALING`"}},
       .collect = OfPopulationsBy<&PopulationFigures::rounds, kLiveStates>},
      {.name = "sheaf_rounds_created_total",
       .unit = "rounds",
       .help = "Rounds that were created.",
       .labels = {kPopulation},
       .collect = OfPopulations<&PopulationFigures::rounds_created>},
      {.name = "sheaf_rounds_ended_total",
       .unit = "rounds",
       .help = "How rounds ended.",
       .labels = {kPopulation, {"state", "`SUCCEEDED`, `FAILED`, `CANCELLED`"}},
       .collect = OfPopulationsBy<&PopulationFigures::rounds_ended, kFinalStates>},
      {.name = "sheaf_round_duration_seconds",
       .type = MetricType::kHistogram,
       .unit = "seconds",
       .help = "From the creation of a round until its aggregate could be read, of rounds that succeeded.",
       .bounds = kWaitBounds,
       .collect = OfCore<&CoreFigures::round_seconds>},
      {.name = "sheaf_seal_duration_seconds",
       .type = MetricType::kHistogram,
       .unit = "seconds",
       .help = "Of those, from the last contribution on.",
       .bounds = kDurationBounds,
       .collect = OfCore<&CoreFigures::seal_seconds>},
      // Contributions.
      {.name = "sheaf_contribution_size_bytes",
       .type = MetricType::kHistogram,
       .unit = "bytes",
       .help = "Contributions that were accepted.",
       .bounds = kByteBounds,
       .collect = OfCore<&CoreFigures::contribution_bytes>},
      {.name = "sheaf_fold_duration_seconds",
       .type = MetricType::kHistogram,
       .unit = "seconds",
       .help = "How long it took to fold a contribution, or several that waited together.",
       .bounds = kDurationBounds,
       .collect = OfCore<&CoreFigures::fold_seconds>},
      {.name = "sheaf_checkpoint_duration_seconds",
       .type = MetricType::kHistogram,
       .unit = "seconds",
       .help = "How long a checkpoint took to be written.",
       .bounds = kDurationBounds,
       .collect = OfCore<&CoreFigures::checkpoint_seconds>},
      {.name = "sheaf_unfolded_bytes",
       .type = MetricType::kGauge,
       .unit = "bytes",
       .help = "Memory of contributions that are being received or wait to be folded (unfolded_bytes_max).",
       .collect = [](Sources sources, const Scrape&,
                     Samples& samples) { samples.Add({}, static_cast<double>(sources.unfolded.bytes())); }},
      {.name = "sheaf_accumulator_bytes",
       .type = MetricType::kGauge,
       .unit = "bytes",
       .help = "Memory of the accumulators of all rounds.",
       .collect = OfCore<&CoreFigures::accumulator_bytes>},
      {.name = "sheaf_spooled_bytes",
       .type = MetricType::kGauge,
       .unit = "bytes",
       .help = "Contributions on disk that no checkpoint covers yet (spool_bytes_max).",
       .labels = {kPopulation},
       .collect = OfPopulations<&PopulationFigures::spooled_bytes>},
      {.name = "sheaf_uploads",
       .type = MetricType::kGauge,
       .unit = "uploads",
       .help = "Uploads that were begun and are not used yet (uploads_max).",
       .collect = [](Sources, const Scrape& scrape,
                     Samples& samples) { samples.Add({}, static_cast<double>(scrape.uploads.num_uploads)); }},
      {.name = "sheaf_upload_bytes",
       .type = MetricType::kGauge,
       .unit = "bytes",
       .help = "What is announced for them (upload_bytes_max, memory_upload_bytes_max).",
       .labels = {{"place", "`disk`, `memory`"}},
       .collect =
           [](Sources, const Scrape& scrape, Samples& samples) {
             samples.Add({"disk"}, static_cast<double>(scrape.uploads.disk_bytes));
             samples.Add({"memory"}, static_cast<double>(scrape.uploads.memory_bytes));
           }},
      // Workers.
      {.name = "sheaf_workers",
       .type = MetricType::kGauge,
       .unit = "workers",
       .help = "Workers that the server knows of since it started, and has not forgotten, which it does ten to twenty "
               "minutes after their last call.",
       .labels = {kPopulation,
                  {"liveness", "`live`: called within poll_wait_max and a minute or two; `silent`: did not"}},
       .collect =
           [](Sources sources, const Scrape& scrape, Samples& samples) {
             const int64_t minute = WorkerAges::MinuteOf(scrape.now);
             const int64_t first = minute - LiveMinutes(sources.limits);
             ForEachPopulation(sources, [&](std::string_view population, const PopulationFigures& figures) {
               const int64_t num_live = figures.workers.NumSince(first, minute);
               samples.Add({population, "live"}, static_cast<double>(num_live));
               samples.Add({population, "silent"},
                           static_cast<double>(std::max<int64_t>(figures.workers.total() - num_live, 0)));
             });
           }},
  };
}

std::vector<MetricRow> RowsOfTheProcess() {
  return {
      {.name = "sheaf_build_info",
       .type = MetricType::kGauge,
       .unit = "",
       .help = "Always 1.",
       .labels = {{"version", "of `sheafd`"}, {"store", "`sqlite`, `memory`"}},
       .collect =
           [](Sources sources, const Scrape&, Samples& samples) {
             samples.Add({kVersion, sources.store}, 1);
           }},
      {.name = "sheaf_limit",
       .type = MetricType::kGauge,
       .unit = "",
       .help = "The limits that are numbers or bytes, as they are: to say how near something is.",
       .labels = {{"limit", "the names of [the limits](limits.md)"}},
       .collect =
           [](Sources sources, const Scrape&, Samples& samples) {
             const std::map<std::string, int64_t> values = sources.limits.ByName();
             for (const LimitRow& row : LimitRows()) {
               if (row.kind == LimitKind::kTime) continue;
               samples.Add({row.name}, static_cast<double>(values.at(row.public_name())));
             }
           }},
      {.name = "sheaf_certificate_expiry_timestamp_seconds",
       .type = MetricType::kGauge,
       .unit = "seconds",
       .help = "Until when the certificate is valid that the server shows, as Unix time; nothing without TLS.",
       .collect =
           [](Sources sources, const Scrape&, Samples& samples) {
             const absl::Time expire_time = sources.certificate.Get().expire_time;
             if (expire_time == absl::InfiniteFuture()) return;
             samples.Add({}, static_cast<double>(absl::ToUnixSeconds(expire_time)));
           }},
      {.name = "sheaf_certificate_problem",
       .type = MetricType::kGauge,
       .unit = "",
       .help = "1 if a renewed certificate is not served; `sheaf server info` says why.",
       .collect = [](Sources sources, const Scrape&,
                     Samples& samples) { samples.Add({}, sources.certificate.Get().problem.empty() ? 0 : 1); }},
      {.name = "process_cpu_seconds_total",
       .unit = "seconds",
       .help = "Processor time of the process.",
       .collect = [](Sources, const Scrape& scrape,
                     Samples& samples) { samples.Add({}, absl::ToDoubleSeconds(scrape.process.cpu)); }},
      {.name = "process_resident_memory_bytes",
       .type = MetricType::kGauge,
       .unit = "bytes",
       .help = "Memory of the process (RSS).",
       .collect = [](Sources, const Scrape& scrape,
                     Samples& samples) { samples.Add({}, static_cast<double>(scrape.process.resident_bytes)); }},
      {.name = "process_virtual_memory_bytes",
       .type = MetricType::kGauge,
       .unit = "bytes",
       .help = "Address space of the process.",
       .collect = [](Sources, const Scrape& scrape,
                     Samples& samples) { samples.Add({}, static_cast<double>(scrape.process.virtual_bytes)); }},
      {.name = "process_open_fds",
       .type = MetricType::kGauge,
       .unit = "files",
       .help = "Open files and connections.",
       .collect = [](Sources, const Scrape& scrape,
                     Samples& samples) { samples.Add({}, static_cast<double>(scrape.process.num_open_files)); }},
      {.name = "process_max_fds",
       .type = MetricType::kGauge,
       .unit = "files",
       .help = "As many as there may be.",
       .collect = [](Sources, const Scrape& scrape,
                     Samples& samples) { samples.Add({}, static_cast<double>(scrape.process.open_files_max)); }},
      {.name = "process_threads",
       .type = MetricType::kGauge,
       .unit = "threads",
       .help = "Threads of the process.",
       .collect = [](Sources, const Scrape& scrape,
                     Samples& samples) { samples.Add({}, static_cast<double>(scrape.process.num_threads)); }},
      {.name = "process_start_time_seconds",
       .type = MetricType::kGauge,
       .unit = "seconds",
       .help = "When the server started, as Unix time.",
       .collect =
           [](Sources sources, const Scrape&, Samples& samples) {
             samples.Add({}, static_cast<double>(absl::ToUnixMillis(sources.start_time)) / 1000);
           }},
  };
}

}  // namespace

std::string_view Name(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      break;
  }
  return "histogram";
}

std::span<const MetricRow> MetricRows() {
  static const std::vector<MetricRow> rows = [] {
    std::vector<MetricRow> all = RowsOfCalls();
    std::vector<MetricRow> of_stores = RowsOfStores();
    for (MetricRow& row : of_stores) {
      row.is_of_store = true;
      all.push_back(std::move(row));
    }
    std::vector<MetricRow> of_the_process = RowsOfTheProcess();
    for (MetricRow& row : of_the_process) all.push_back(std::move(row));
    return all;
  }();
  return rows;
}

Samples::Sample& Samples::Append(std::initializer_list<std::string_view> labels) {
  SHEAF_CHECK(labels.size() == row_.labels.size(), "{} labels of {}", labels.size(), row_.name);
  return all_.emplace_back(Sample{.labels = {labels.begin(), labels.end()}, .value = 0, .distribution = {}});
}

void Samples::Add(std::initializer_list<std::string_view> labels, double value) { Append(labels).value = value; }

void Samples::Add(std::initializer_list<std::string_view> labels, const Histogram& histogram) {
  SHEAF_CHECK(histogram.bounds().data() == row_.bounds.data(), "{} has other buckets", row_.name);
  Append(labels).distribution = histogram.Read();
}

}  // namespace sheaf
