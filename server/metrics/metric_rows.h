// MetricRows: the metrics of a server, one row each: what it is called, what it means, and where it is read. What
// /metrics serves, docs/reference/metrics.md and the tests of both come of the rows.
//
//   const Scrape scrape{.now = now, .process = ReadProcessStatus(), .uploads = payloads.GetUploadUse("")};
//   for (const MetricRow& row : MetricRows()) {
//     Samples samples(row);
//     row.collect(sources, scrape, samples);
//   }
//
// Names are Prometheus': base units, "_total" for what only grows, few labels. The values of each label are bounded,
// and never ids or what strangers write, but for the names of populations, of which there are at most
// PopulationSlots::kNum. Rows are constants: thread-safe.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/histogram.h"
#include "server/calls/admission.h"
#include "server/calls/answer_books.h"
#include "server/calls/call_pipeline.h"
#include "server/core/figures/batch_figures.h"
#include "server/core/figures/core_figures.h"
#include "server/core/limits/limits.h"
#include "server/core/limits/memory_budget.h"
#include "server/metrics/process_status.h"
#include "storage/payload_store.h"
#include "tls/serving_certificate.h"

namespace sheaf {

// Where the rows look. All of it may be read on any thread, while the server works.
struct MetricSources {
  const CoreFigures& core;
  const BatchFigures& batches;
  const Admission& admission;
  CallPipeline& pipeline;
  PayloadStore& payloads;
  const MemoryBudget& unfolded;
  const ServingCertificate& certificate;
  const Limits& limits;
  // "sqlite"
  std::string store;
  absl::Time start_time;
};

// What is asked once for all rows.
struct Scrape {
  absl::Time now;
  ProcessStatus process;
  PayloadStore::UploadUse uploads;
};

enum class MetricType { kCounter, kGauge, kHistogram };
// "counter"
std::string_view Name(MetricType type);

struct MetricLabel {
  std::string_view name;
  std::string_view values;
};

class Samples;

struct MetricRow {
  std::string_view name;
  MetricType type = MetricType::kCounter;
  // "seconds", "bytes" or what is counted: "calls".
  std::string_view unit;
  std::string_view help;
  std::vector<MetricLabel> labels;
  // Of a histogram.
  std::span<const double> bounds;
  // A server of several shards has it for each (MetricsText).
  bool is_of_store = false;
  void (*collect)(const MetricSources& sources, const Scrape& scrape, Samples& samples) = nullptr;
};
// In the order of the page.
std::span<const MetricRow> MetricRows();

// The values of one row at one moment.
class Samples {
 public:
  explicit Samples(const MetricRow& row) : row_(row) {}

  // With the values of the row's labels, in its order; CHECKs that there are as many. Each combination once.
  void Add(std::initializer_list<std::string_view> labels, double value);
  // CHECKs that the bounds are the row's.
  void Add(std::initializer_list<std::string_view> labels, const Histogram& histogram);

  struct Sample {
    std::vector<std::string> labels;
    double value = 0;
    // Of a histogram.
    Histogram::State distribution;
  };
  const std::vector<Sample>& all() const { return all_; }

 private:
  Sample& Append(std::initializer_list<std::string_view> labels);

  const MetricRow& row_;
  std::vector<Sample> all_;
};

}  // namespace sheaf
