#include "server/metrics/metrics_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <optional>
#include <string>
#include <utility>
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

void MetricsText::LookAt(MetricSources sources) {
  auto all = std::make_unique<const MetricSources>(std::move(sources));
  MutexLock lock(mutex_);
  sources_ = std::move(all);
}

void MetricsText::LookAt(Shard shard, MetricSources sources) {
  auto all = std::make_unique<const MetricSources>(std::move(sources));
  MutexLock lock(mutex_);
  shards_[shard] = std::move(all);
}

void MetricsText::StopLooking(Shard shard) {
  MutexLock lock(mutex_);
  shards_.erase(shard);
}

std::string MetricsText::At(absl::Time now) const {
  MutexLock lock(mutex_);
  const ProcessStatus process = ReadProcessStatus();
  std::vector<prometheus::MetricFamily> families;
  for (const MetricRow& row : MetricRows()) {
    prometheus::MetricFamily& family = families.emplace_back();
    family.name = std::string(row.name);
    family.help = std::string(row.help);
    family.type = TypeOf(row.type);
  }
  const auto add = [&](const MetricSources& sources, std::optional<Shard> shard) {
    const Scrape scrape{.now = now, .process = process, .uploads = sources.payloads.GetUploadUse("")};
    for (size_t i = 0; i < families.size(); ++i) {
      const MetricRow& row = MetricRows()[i];
      if (shard && !row.is_of_store) continue;
      Samples samples(row);
      row.collect(sources, scrape, samples);
      for (const Samples::Sample& sample : samples.all()) {
        prometheus::ClientMetric& metric = families[i].metric.emplace_back(MetricOf(row, sample));
        if (shard) metric.label.push_back({.name = "shard", .value = std::to_string(*shard)});
      }
    }
  };
  add(*sources_, std::nullopt);
  for (const auto& [shard, sources] : shards_) add(*sources, shard);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace sheaf
