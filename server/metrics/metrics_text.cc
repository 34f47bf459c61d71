#include "server/metrics/metrics_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <vector>

namespace sheaf {
namespace {

prometheus::MetricType TypeOf(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric::Histogram DistributionOf(const Histogram::State& state) {
  prometheus::ClientMetric::Histogram histogram;
  histogram.sample_sum = state.sum;
  histogram.sample_count = state.buckets.back().count;
  histogram.bucket.reserve(state.buckets.size());
  for (const Histogram::Bucket& bucket : state.buckets) {
    histogram.bucket.push_back({.cumulative_count = bucket.count, .upper_bound = bucket.bound});
  }
  return histogram;
}

prometheus::ClientMetric MetricOf(const MetricRow& row, const Samples::Sample& sample) {
  prometheus::ClientMetric metric;
  for (size_t i = 0; i < sample.labels.size(); ++i) {
    metric.label.push_back({.name = std::string(row.labels[i].name), .value = sample.labels[i]});
  }
  switch (row.type) {
    case MetricType::kCounter:
      metric.counter.value = sample.value;
      break;
    case MetricType::kGauge:
      metric.gauge.value = sample.value;
      break;
    case MetricType::kHistogram:
      metric.histogram = DistributionOf(sample.distribution);
      break;
  }
  return metric;
}

}  // namespace

std::string MetricsText::At(absl::Time now) const {
  std::shared_ptr<const MetricSources> sources;
  {
    MutexLock lock(mutex_);
    sources = sources_;
  }
  const Scrape scrape{.now = now, .process = ReadProcessStatus(), .uploads = sources->payloads.GetUploadUse("")};
  std::vector<prometheus::MetricFamily> families;
  for (const MetricRow& row : MetricRows()) {
    Samples samples(row);
    row.collect(*sources, scrape, samples);
    prometheus::MetricFamily& family = families.emplace_back();
    family.name = std::string(row.name);
    family.help = std::string(row.help);
    family.type = TypeOf(row.type);
    family.metric.reserve(samples.all().size());
    for (const Samples::Sample& sample : samples.all()) family.metric.push_back(MetricOf(row, sample));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace sheaf
