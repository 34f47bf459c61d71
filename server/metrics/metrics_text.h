// MetricsText: what `GET /metrics` answers: all metrics of a server, as Prometheus reads them (text format 0.0.4).
//
//   const MetricsText metrics(sources);
//   const std::string body = metrics.At(clock.Now());       // Content-Type: MetricsText::kContentType.
//
// It looks at what was counted, and takes no time of the core's: it costs what there is to say, however many tasks
// there are. Refers to the sources. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/metrics/metric_rows.h"
#include "storage/shard.h"

namespace sheaf {

class MetricsText {
 public:
  static constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

  explicit MetricsText(MetricSources sources) { LookAt(std::move(sources)); }

  // It looks at these from now on, for all but what other shards have.
  void LookAt(MetricSources sources) EXCLUDES(mutex_);
  // For what is the store's own it looks at these, too, with the label `shard`, until that is over: when StopLooking
  // returns, nobody looks any more.
  void LookAt(Shard shard, MetricSources sources) EXCLUDES(mutex_);
  void StopLooking(Shard shard) EXCLUDES(mutex_);

  std::string At(absl::Time now) const EXCLUDES(mutex_);

 private:
  // Held by who looks.
  mutable Mutex mutex_;
  std::unique_ptr<const MetricSources> sources_ GUARDED_BY(mutex_);
  std::map<Shard, std::unique_ptr<const MetricSources>> shards_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
